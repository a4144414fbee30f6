// A file of documents: read here, labelled by the server in batches, offered as a download.

import { $, ask, pause } from "./api.js";
import { asCsv, asJsonl, tableOf } from "./formats.js";

const MOST_BYTES = 200e6;
const TRIES = 20; // while the server is busy

export class Files {
  constructor({ model, settings }) {
    Object.assign(this, { model, settings });
    $("file").addEventListener("change", () => this.ready());
    $("start").addEventListener("click", () => this.run());
    $("stop").addEventListener("click", () => this.abort.abort());
    const drop = $("drop");
    for (const name of ["dragover", "dragleave", "drop"]) {
      drop.addEventListener(name, (event) => {
        event.preventDefault();
        drop.classList.toggle("over", name === "dragover");
        if (name === "drop" && event.dataTransfer.files.length) {
          $("file").files = event.dataTransfer.files;
          this.ready();
        }
      });
    }
  }

  ready() {
    $("start").disabled = !$("file").files.length;
    $("download").hidden = true;
    this.say("");
  }

  say(message, bad = false) {
    $("file-said").textContent = message;
    $("file-said").classList.toggle("bad", bad);
  }

  async run() {
    const [file] = $("file").files;
    this.abort = new AbortController();
    this.working(true);
    try {
      const table = tableOf(file.name, await read(file));
      this.offer(file.name, table, await this.label(table.texts, this.settings()));
    } catch (error) {
      this.say(error.name === "AbortError" ? "Stopped." : error.message, true);
    }
    this.working(false);
  }

  working(on) {
    $("start").hidden = on;
    $("stop").hidden = !on;
    $("progress").hidden = !on;
    $("progress").value = 0;
    if (on) {
      $("download").hidden = true;
      this.say("Reading …");
    }
  }

  /** The labels of each document; batches keep to the limits of the server. */
  async label(texts, { k, threshold }) {
    const { max_batch: rows, max_body: bytes } = this.model.limits;
    const found = [];
    const unknown = new Set(); // documents without a known word
    let most = Math.max(1, Math.min(rows, 128));
    let tries = 0;
    while (found.length < texts.length) {
      const text = batch(texts, found.length, most, bytes - 1000);
      try {
        const answer = await ask("/v1/predict", { body: { text, k, threshold }, signal: this.abort.signal });
        for (const row of answer.no_known_word) unknown.add(found.length + row);
        found.push(...answer.predictions);
        tries = 0;
      } catch (error) {
        // What is too much at a time is asked for in halves, and a busy server again later.
        if (error.status !== 503 || ++tries > TRIES) throw error;
        most = error.code === "timeout" ? Math.max(1, most >> 1) : most;
        await pause(1000);
      }
      $("progress").value = found.length / texts.length;
      this.say(`${found.length.toLocaleString("en")} of ${texts.length.toLocaleString("en")} documents`);
    }
    return { found, unknown };
  }

  offer(name, table, { found, unknown }) {
    const format = $("format").value;
    const content = format === "csv" ? asCsv(table, found, this.settings().k) : asJsonl(table, found, unknown);
    URL.revokeObjectURL($("download").href);
    const type = format === "csv" ? "text/csv" : "application/jsonl";
    $("download").href = URL.createObjectURL(new Blob([content], { type }));
    $("download").download = `${name.replace(/\.[^.]*$/, "")}-labels.${format}`;
    $("download").textContent = `Download ${$("download").download}`;
    $("download").hidden = false;
    const n = found.length;
    const none = unknown.size ? ` ${unknown.size.toLocaleString("en")} of them without a word that the model knows.` : "";
    this.say(`Done: ${n.toLocaleString("en")} ${n === 1 ? "document" : "documents"}.${none}`);
  }
}

async function read(file) {
  if (file.size > MOST_BYTES) {
    throw new Error("The file has more than 200 MB; labelry predict takes files of any size.");
  }
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
  } catch {
    throw new Error("The file is not UTF-8 text.");
  }
}

/** The next documents, at most so many and so many bytes of JSON. */
function batch(texts, start, most, bytes) {
  const encoder = new TextEncoder();
  const taken = [];
  let size = 0;
  for (const text of texts.slice(start, start + most)) {
    size += encoder.encode(JSON.stringify(text)).length + 1;
    if (size > bytes) break;
    taken.push(text);
  }
  if (!taken.length) {
    throw new Error(`Document ${start + 1} is longer than the ${bytes.toLocaleString("en")} bytes that the server takes.`);
  }
  return taken;
}
