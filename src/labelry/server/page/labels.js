// A document and its labels, as it is typed.

import { $, ask, button, copy, element, nameOf, shown } from "./api.js";

const DEBOUNCE = 120; // milliseconds after the last key
const QUIET = 900; // before the labels are said aloud
const EMPTY = "The labels of your document appear here.";
const UNKNOWN = "The model knows no word of this document.";
const WORDS = 4; // shown below a label
const FAINT = 0.08; // share of the strongest word, below which a word is not shown

export class Labels {
  constructor({ model, complain, open, answered }) {
    Object.assign(this, { model, complain, open, answered });
    this.labels = [];
    this.active = null; // id of the label whose words are marked
    this.number = 0; // of the latest request: answers to older ones are dropped
    this.rows = new Map(); // id of a label to its list item
    this.text = $("text");
    this.text.addEventListener("input", () => this.changed());
    this.text.addEventListener("scroll", () => this.follow());
    addEventListener("resize", () => this.fit());
    $("k").addEventListener("change", () => this.request());
    $("threshold").addEventListener("input", () => this.filter());
    $("clear").addEventListener("click", () => this.write(""));
    $("copy").addEventListener("click", () => copy($("copy"), this.predicted().map((l) => l.label).join("\n")));
    this.render();
  }

  get probable() {
    return this.model.scores === "probabilities";
  }

  settings() {
    return { k: Number($("k").value), threshold: this.probable ? $("threshold").value / 100 : null };
  }

  /** Replace the document. */
  write(text) {
    this.text.value = text;
    this.changed();
    this.text.focus();
  }

  changed() {
    $("clear").hidden = !this.text.value;
    this.fit();
    this.mark();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.request(), DEBOUNCE);
  }

  async request() {
    const number = ++this.number;
    const text = this.text.value;
    this.abort?.abort();
    this.abort = new AbortController();
    if (!text.trim()) {
      this.take([], null, 0);
      return this.answered([], null);
    }
    const body = { text, k: this.settings().k };
    const start = performance.now();
    try {
      const answer = await ask("/v1/predict", { body, signal: this.abort.signal });
      if (number !== this.number) return;
      this.unknown = answer.no_known_word.length > 0;
      this.take(answer.predictions[0], answer.model, performance.now() - start);
      this.complain(null);
      await this.answered(this.shown(), answer.model); // which may learn of another model
      if (number !== this.number) return;
      // Words take ten times as long as labels, so they come in a second answer.
      const few = body.k <= this.model.limits.max_batch;
      if (this.model.explains && few) await this.explain(body, number);
    } catch (error) {
      if (error.name !== "AbortError" && number === this.number) this.complain(error);
    }
  }

  async explain(body, number) {
    const asked = { ...body, explain: true };
    const answer = await ask("/v1/predict", { body: asked, signal: this.abort.signal });
    if (number !== this.number) return;
    this.labels = answer.predictions[0];
    this.render();
  }

  take(labels, source, milliseconds) {
    const old = source === this.source ? this.labels : [];
    const before = new Map(old.map((label) => [label.id, label.explanation]));
    this.source = source; // the model that answered
    // Until the new words come the old ones stay: no flicker.
    this.labels = labels.map((label) => ({ explanation: before.get(label.id), ...label }));
    $("pace").textContent = labels.length ? `${Math.max(1, Math.round(milliseconds))} ms` : "";
    this.render();
  }

  /** The labels that reach the threshold. */
  shown() {
    const least = this.settings().threshold ?? -Infinity;
    return this.labels.filter((label) => label.score >= least);
  }

  /** The labels that the model predicts; all that are shown if it predicts none of them. */
  predicted() {
    const labels = this.shown();
    const strong = labels.filter((label) => !this.isFaint(label));
    return strong.length ? strong : labels;
  }

  isFaint(label) {
    return label.score < this.model.threshold;
  }

  filter() {
    $("threshold-shown").textContent = `${$("threshold").value} %`;
    this.render();
    this.answered(this.shown(), null);
  }

  render() {
    const labels = this.shown();
    const focused = this.focusedLabel();
    const list = $("labels");
    // A threshold and bars from 0 to 1 are for probabilities only.
    $("threshold-control").hidden = !this.probable;
    const items = labels.map((label) => this.item(label, labels[0].score));
    // Rows are kept, so that bars move and the keyboard's place is not lost.
    if (items.some((item, i) => list.children[i] !== item) || list.children.length !== items.length) {
      list.replaceChildren(...items);
      if (focused !== null) this.rows.get(focused)?.firstChild.focus();
    }
    const kept = new Set(labels.map((label) => label.id));
    for (const id of this.rows.keys()) if (!kept.has(id)) this.rows.delete(id);
    if (!kept.has(this.active)) this.active = null;
    $("labels-empty").hidden = labels.length > 0;
    const written = this.text.value.trim();
    $("labels-empty").textContent = written ? (this.unknown ? UNKNOWN : "No label reaches this probability.") : EMPTY;
    $("frequent").hidden = Boolean(written) || !$("frequent").querySelector("li");
    this.note(labels);
    this.mark();
    clearTimeout(this.saying);
    this.saying = setTimeout(() => this.say(labels), QUIET);
  }

  /** What the faded labels are, and what the button copies. */
  note(labels) {
    const least = this.said(this.model.threshold);
    const faint = labels.filter((label) => this.isFaint(label)).length;
    $("faint-note").hidden = !faint;
    $("faint-note").textContent = faint === labels.length
      ? `Faded: no label reaches ${least}, from which the model predicts a label.`
      : `Faded: labels below ${least}, from which the model predicts a label.`;
    const n = this.predicted().length;
    $("copy").hidden = !n;
    $("copy").textContent = n === 1 ? "Copy the label" : `Copy ${n} labels`;
  }

  focusedLabel() {
    const row = document.activeElement?.closest("#labels li");
    return row ? row.label.id : null;
  }

  item(label, best) {
    const known = this.rows.get(label.id); // of another model, perhaps
    const row = known?.label.label === label.label ? known : this.newRow(label);
    const share = this.probable ? label.score : label.score / (Math.abs(best) || 1);
    row.bar.style.transform = `scaleX(${Math.min(1, Math.max(0, share))})`;
    row.score.textContent = this.said(label.score);
    row.why.replaceChildren(...words(label.explanation));
    row.classList.toggle("faint", this.isFaint(label));
    return row;
  }

  newRow(label) {
    const row = element("li");
    row.label = label;
    row.bar = element("span", "bar");
    row.score = element("span", "score");
    row.why = element("span", "why");
    const made = button(
      "label", () => this.open(row.label),
      element("span", "", ...shown(label)), row.score, element("span", "track", row.bar), row.why,
    );
    for (const event of ["pointerenter", "focus"]) {
      made.addEventListener(event, () => this.activate(label.id));
    }
    row.append(made);
    this.rows.set(label.id, row);
    return row;
  }

  said(score) {
    if (!this.probable) return score.toPrecision(3);
    return score < 0.01 ? "< 1 %" : `${Math.round(100 * score)} %`;
  }

  activate(id) {
    this.active = id;
    this.mark();
  }

  say(labels) {
    const list = labels.map((label) => `${nameOf(label)} ${this.said(label.score)}`).join(", ");
    $("labels-said").textContent = labels.length ? `${labels.length} labels: ${list}` : "";
  }

  /** Mark the words that raise or lower the label that is looked at, or the first. */
  mark() {
    const labels = this.shown();
    const label = labels.find((one) => one.id === this.active) ?? labels[0];
    for (const [id, row] of this.rows) {
      row.firstChild.setAttribute("aria-current", String(id === label?.id));
    }
    const marks = label?.explanation ? marked(this.text.value, label.explanation) : [this.text.value];
    $("marks").replaceChildren(...marks, "\n");
    const found = marks.length > 1;
    $("marks-note").replaceChildren(
      ...(found ? ["Marked: words for ", element("bdi", "", String(label.label)), ". Wavy: words against it."] : []),
    );
    this.follow();
  }

  /** Grow with the text. */
  fit() {
    this.text.style.height = "auto";
    this.text.style.height = `${this.text.scrollHeight + 2}px`;
    this.follow();
  }

  follow() {
    $("marks").scrollTop = this.text.scrollTop;
  }
}

function words(explanation) {
  if (!explanation) return [];
  const { supporting, opposing } = explanation;
  const least = FAINT * Math.max(0, ...[...supporting, ...opposing].map(([, value]) => Math.abs(value)));
  const strong = (list, n) => list.filter(([, value]) => Math.abs(value) > least).slice(0, n).map(([word]) => String(word));
  const parts = [];
  const [raising, [lowering]] = [strong(supporting, WORDS), strong(opposing, 1)];
  if (raising.length) parts.push(element("span", "for", `for: ${raising.join(" · ")}`));
  if (lowering) parts.push(element("span", "against", `against: ${lowering}`));
  return parts;
}

/** A document as strings and marks, by what its words add to a label. */
export function marked(text, explanation) {
  const tokens = [...text.matchAll(/[\p{L}\p{N}_]+/gu)];
  const words = tokens.map((token) => token[0].toLowerCase());
  const total = new Float64Array(tokens.length);
  const terms = Map.groupBy(
    [...explanation.supporting, ...explanation.opposing].map(([term, value]) => [String(term).split(" "), value]),
    ([parts]) => parts[0],
  );
  words.forEach((word, i) => {
    for (const [parts, value] of terms.get(word) ?? []) {
      if (!parts.every((part, j) => words[i + j] === part)) continue;
      // A term of several words gives each of them its share.
      parts.forEach((_, j) => (total[i + j] += value / parts.length));
    }
  });
  const most = total.reduce((a, b) => Math.max(a, Math.abs(b)), 0);
  const parts = [];
  let end = 0;
  tokens.forEach((token, i) => {
    const share = total[i] / most;
    if (!(Math.abs(share) > FAINT)) return;
    const kind = share < 0 ? "against" : `for-${Math.min(3, Math.ceil(3 * share))}`;
    parts.push(text.slice(end, token.index), element("mark", kind, token[0]));
    end = token.index + token[0].length;
  });
  return [...parts, text.slice(end)];
}
