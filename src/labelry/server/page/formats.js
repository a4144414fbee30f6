// Files to lists of documents, and labels to files.

/**
 * The documents in a file (`texts`), with the columns of its table (`header`, `rows`); an Error
 * that says what is wrong and in which line.
 */
export function tableOf(name, content) {
  const kind = name.toLowerCase().match(/\.([^.]*)$/)?.[1];
  const readers = { txt: lines, jsonl: jsonl, ndjson: jsonl, csv: csv };
  if (!(kind in readers)) throw new Error("The name must end in .txt, .jsonl or .csv.");
  if (content.includes("\0")) throw new Error("The file is not text: it has zero bytes.");
  const found = readers[kind](content.replace(/^\ufeff/, ""));
  const table = found.texts ? found : { texts: found, header: ["text"], rows: found.map((text) => [text]) };
  if (!table.texts.length) throw new Error("The file has no documents.");
  return table;
}

function lines(content) {
  const found = content.split(/\r\n|\n|\r/);
  if (found.at(-1) === "") found.pop();
  return found;
}

function jsonl(content) {
  return lines(content).flatMap((line, i) => {
    if (!line.trim()) return [];
    let record;
    try {
      record = JSON.parse(line);
    } catch {
      throw new Error(`Line ${i + 1} is not JSON.`);
    }
    if (typeof record?.text !== "string") throw new Error(`Line ${i + 1} has no field "text".`);
    return [record.text];
  });
}

function csv(content) {
  const records = csvRecords(content);
  const header = (records.shift()?.cells ?? []).map((cell) => cell.trim());
  const column = header.findIndex((cell) => cell.toLowerCase() === "text");
  if (column < 0) throw new Error(`The first line names no column "text"; it has: ${header.join(", ").slice(0, 200)}.`);
  const wrong = records.find(({ cells }) => cells.length !== header.length);
  if (wrong) {
    throw new Error(`Line ${wrong.line} has ${wrong.cells.length} columns, the first line ${header.length}.`);
  }
  const rows = records.map(({ cells }) => cells);
  return { texts: rows.map((cells) => cells[column]), header, rows };
}

/** Records of RFC 4180, each with the number of its first line; empty lines are left out. */
function csvRecords(content) {
  const field = /(?:"((?:[^"]|"")*)"|([^",\r\n]*))(,|\r\n|\n|\r|$)/y;
  const records = [];
  let cells = [];
  let line = 1;
  let first = 1;
  while (field.lastIndex < content.length || cells.length) {
    const start = field.lastIndex;
    const match = field.exec(content);
    if (!match) {
      throw new Error(`Line ${line}: a quote that does not end, or text after a quoted cell.`);
    }
    cells.push(match[1] === undefined ? match[2] : match[1].replaceAll('""', '"'));
    line += (match[0].match(/\r\n|\n|\r/g) ?? []).length;
    if (match[3] !== ",") {
      if (cells.length > 1 || match[0].trim()) records.push({ cells, line: first });
      cells = [];
      first = line;
    }
    if (field.lastIndex === start && match[3] !== ",") break; // the end
  }
  return records;
}

/** The columns of the file, then label and score of each label, as labelry predict names them. */
export function asCsv({ header, rows }, predicted, k) {
  const most = Math.min(k, Math.max(1, ...new Set(predicted.map((labels) => labels.length))));
  const names = Array.from({ length: most }, (_, i) => [`label_${i + 1}`, `score_${i + 1}`]).flat();
  const out = [[...header, ...names].map(cell).join(",")];
  rows.forEach((cells, row) => {
    const labels = predicted[row].slice(0, most).flatMap((label) => [cell(String(label.label)), label.score.toPrecision(7)]);
    const filled = [...labels, ...Array(names.length - labels.length).fill("")];
    out.push([...cells.map(cell), ...filled].join(","));
  });
  return `\ufeff${out.join("\r\n")}\r\n`; // the mark makes Excel read it as UTF-8
}

// A spreadsheet would run a cell that begins like a formula; an apostrophe makes it text.
function cell(text) {
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

export function asJsonl({ texts }, predicted, unknown) {
  const line = (text, labels, note) => JSON.stringify({
    text, labels: labels.map((label) => label.label), scores: labels.map((label) => label.score), ...note,
  });
  const note = (row) => (unknown.has(row) ? { note: "no known word" } : {});
  return texts.map((text, row) => `${line(text, predicted[row], note(row))}\n`).join("");
}
