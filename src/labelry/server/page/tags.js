// The text and its tags, as it is typed.

import { $, ask, button, element, nameOf, shown } from "./api.js";

const DEBOUNCE = 120; // milliseconds after the last key
const QUIET = 900; // before the tags are said aloud
const WORDS = 4; // shown below a tag

export class Tags {
  constructor({ model, complain, open, answered }) {
    Object.assign(this, { model, complain, open, answered });
    this.tags = [];
    this.active = null; // id of the label whose words are marked
    this.number = 0; // of the latest request: answers to older ones are dropped
    this.rows = new Map(); // id of a label to its list item
    this.text = $("text");
    this.text.addEventListener("input", () => this.changed());
    this.text.addEventListener("scroll", () => this.follow());
    addEventListener("resize", () => this.fit());
    $("k").addEventListener("change", () => this.request());
    $("threshold").addEventListener("input", () => this.filter());
    $("clear").addEventListener("click", () => this.clear());
    this.render();
  }

  get probable() {
    return this.model.scores === "probabilities";
  }

  settings() {
    return { k: Number($("k").value), threshold: this.probable ? $("threshold").value / 100 : null };
  }

  clear() {
    this.text.value = "";
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
      this.take(answer.predictions[0], answer.model, performance.now() - start);
      this.complain(null);
      await this.answered(this.shown(), answer.model); // which may learn of another model
      if (number !== this.number) return;
      // Words take ten times as long as tags, so they come in a second answer.
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
    this.tags = answer.predictions[0];
    this.render();
  }

  take(tags, source, milliseconds) {
    const old = source === this.source ? this.tags : [];
    const before = new Map(old.map((tag) => [tag.id, tag.explanation]));
    this.source = source; // the model that answered
    // Until the new words come the old ones stay: no flicker.
    this.tags = tags.map((tag) => ({ explanation: before.get(tag.id), ...tag }));
    $("pace").textContent = tags.length ? `${Math.max(1, Math.round(milliseconds))} ms` : "";
    this.render();
  }

  /** The tags that reach the threshold. */
  shown() {
    const least = this.settings().threshold ?? -Infinity;
    return this.tags.filter((tag) => tag.score >= least);
  }

  filter() {
    $("threshold-shown").textContent = `${$("threshold").value} %`;
    this.render();
    this.answered(this.shown(), null);
  }

  render() {
    const tags = this.shown();
    const focused = this.focusedLabel();
    const list = $("tags");
    // A threshold and bars from 0 to 1 are for probabilities only.
    $("threshold-control").hidden = !this.probable;
    const items = tags.map((tag) => this.item(tag, tags[0].score));
    // Rows are kept, so that bars move and the keyboard's place is not lost.
    if (items.some((item, i) => list.children[i] !== item) || list.children.length !== items.length) {
      list.replaceChildren(...items);
      if (focused !== null) this.rows.get(focused)?.firstChild.focus();
    }
    const kept = new Set(tags.map((tag) => tag.id));
    for (const id of this.rows.keys()) if (!kept.has(id)) this.rows.delete(id);
    if (!kept.has(this.active)) this.active = null;
    $("tags-empty").hidden = tags.length > 0;
    $("tags-empty").textContent = this.text.value.trim() ? "No tag reaches this." : "Nothing yet.";
    this.mark();
    clearTimeout(this.saying);
    this.saying = setTimeout(() => this.say(tags), QUIET);
  }

  focusedLabel() {
    const row = document.activeElement?.closest("#tags li");
    return row ? row.label.id : null;
  }

  item(tag, best) {
    const known = this.rows.get(tag.id); // of another model, perhaps
    const row = known?.label.label === tag.label ? known : this.newRow(tag);
    const share = this.probable ? tag.score : tag.score / (Math.abs(best) || 1);
    row.bar.style.transform = `scaleX(${Math.min(1, Math.max(0, share))})`;
    row.score.textContent = this.said(tag.score);
    row.why.replaceChildren(...words(tag.explanation));
    return row;
  }

  newRow(tag) {
    const row = element("li");
    row.label = tag;
    row.bar = element("span", "bar");
    row.score = element("span", "score");
    row.why = element("span", "why");
    const made = button(
      "tag", () => this.open(row.label),
      element("span", "", ...shown(tag)), row.score, element("span", "track", row.bar), row.why,
    );
    for (const event of ["pointerenter", "focus"]) {
      made.addEventListener(event, () => this.activate(tag.id));
    }
    row.append(made);
    this.rows.set(tag.id, row);
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

  say(tags) {
    const list = tags.map((tag) => `${nameOf(tag)} ${this.said(tag.score)}`).join(", ");
    $("tags-said").textContent = tags.length ? `${tags.length} tags: ${list}` : "";
  }

  /** Mark the words that speak for the label that is looked at, or for the first. */
  mark() {
    const tags = this.shown();
    const tag = tags.find((one) => one.id === this.active) ?? tags[0];
    for (const [id, row] of this.rows) {
      row.firstChild.setAttribute("aria-current", String(id === tag?.id));
    }
    const marks = tag?.explanation ? marked(this.text.value, tag.explanation) : [this.text.value];
    $("marks").replaceChildren(...marks, "\n");
    const found = marks.length > 1;
    $("marks-note").replaceChildren(
      ...(found ? ["Marked: words for ", element("bdi", "", String(tag.label)), "; wavy: against"] : []),
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
  const strongest = explanation.supporting.slice(0, WORDS).map(([word]) => String(word));
  const against = explanation.opposing.slice(0, 1).map(([word]) => String(word));
  const parts = [];
  if (strongest.length) parts.push(element("span", "for", strongest.join(" · ")));
  if (against.length) parts.push(element("span", "against", `against: ${against[0]}`));
  return parts;
}

/** A text as strings and marks, by what its words add to a label. */
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
    if (!(Math.abs(share) > 0.08)) return;
    const kind = share < 0 ? "against" : `for-${Math.min(3, Math.ceil(3 * share))}`;
    parts.push(text.slice(end, token.index), element("mark", kind, token[0]));
    end = token.index + token[0].length;
  });
  return [...parts, text.slice(end)];
}
