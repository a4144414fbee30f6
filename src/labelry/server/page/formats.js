// Files to lists of documents, and labels to files.

/** The documents in a file; an Error that says what is wrong and in which line. */
export function textsOf(name, content) {
  const kind = name.toLowerCase().match(/\.([^.]*)$/)?.[1];
  const readers = { txt: lines, jsonl: jsonl, ndjson: jsonl, csv: csv };
  if (!(kind in readers)) throw new Error("The name must end in .txt, .jsonl or .csv.");
  if (content.includes("\0")) throw new Error("The file is not text: it has zero bytes.");
  const texts = readers[kind](content.replace(/^\ufeff/, ""));
  if (!texts.length) throw new Error("The file has no documents.");
  return texts;
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
  const header = (records.shift()?.cells ?? []).map((cell) => cell.trim().toLowerCase());
  const column = header.indexOf("text");
  if (column < 0) throw new Error(`The first line names no column "text"; it has: ${header.join(", ").slice(0, 200)}.`);
  return records.map(({ cells, line }) => {
    if (cells.length !== header.length) {
      throw new Error(`Line ${line} has ${cells.length} columns, the first line ${header.length}.`);
    }
    return cells[column];
  });
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

/** A line for each text: the text, then label and score of each label. */
export function asCsv(texts, rows, k) {
  const described = rows.some((labels) => labels.some((label) => label.description));
  const names = (i) => [`label ${i + 1}`, ...(described ? [`description ${i + 1}`] : []), `score ${i + 1}`];
  const most = Math.min(k, Math.max(1, ...new Set(rows.map((labels) => labels.length))));
  const header = ["text", ...Array.from({ length: most }, (_, i) => names(i)).flat()];
  const out = [header.map(cell).join(",")];
  texts.forEach((text, row) => {
    const labels = rows[row].flatMap((label) => [
      cell(String(label.label)), ...(described ? [cell(label.description ?? "")] : []), label.score.toPrecision(4),
    ]);
    const filled = [cell(text), ...labels, ...Array(header.length).fill("")].slice(0, header.length);
    out.push(filled.join(","));
  });
  return `\ufeff${out.join("\r\n")}\r\n`; // the mark makes Excel read it as UTF-8
}

// A spreadsheet would run a cell that begins like a formula; an apostrophe makes it text.
function cell(text) {
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

export function asJsonl(texts, rows) {
  const line = (text, labels) => JSON.stringify({
    text, labels: labels.map((label) => label.label), scores: labels.map((label) => label.score),
  });
  return texts.map((text, row) => `${line(text, rows[row])}\n`).join("");
}
