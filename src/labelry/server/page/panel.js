// One label: how frequent it is, its words, the labels like it.

import { $, ask, button, copy, element, shown } from "./api.js";

export class Panel {
  constructor({ model, complain, show }) {
    Object.assign(this, { model, complain, show, canShow: false, number: 0 });
    $("panel-close").addEventListener("click", () => this.close());
    $("panel-show").addEventListener("click", () => {
      if (innerWidth < 640) this.close();
      this.show(this.label);
    });
    $("panel-link").addEventListener("click", () => copy($("panel-link"), location.href));
    addEventListener("keydown", (event) => {
      if (event.key === "Escape" && !$("panel").hidden) this.close();
    });
  }

  /** The label that is open, or null; the address of the page has it too, as a link to the label. */
  get name() {
    return $("panel").hidden ? null : String(this.label.label);
  }

  async open(label) {
    const number = ++this.number;
    if ($("panel").hidden) this.opener = document.activeElement;
    this.label = label;
    this.clear(label);
    $("panel").hidden = false;
    $("panel").scrollTop = 0;
    $("panel-title").focus();
    history.replaceState(null, "", `#label=${encodeURIComponent(label.label)}`);
    try {
      const [counted, words, similar] = await Promise.all([
        ask(`/v1/labels?ids=${label.id}`),
        this.model.has_words ? ask(`/v1/labels/${label.id}/words?k=16`) : null,
        this.model.compares_labels ? ask(`/v1/labels/${label.id}/similar?k=10`) : null,
      ]);
      if (number !== this.number) return;
      this.fillRows(counted.labels[0]);
      if (words) this.fillWords(words);
      if (similar) this.fillSimilar(similar.similar);
    } catch (error) {
      if (number === this.number) this.complain(error);
    }
  }

  clear(label) {
    $("panel-title").replaceChildren(element("bdi", "", String(label.label)));
    $("panel-description").replaceChildren(...(label.description ? [element("bdi", "", label.description)] : []));
    $("panel-rows").textContent = "";
    $("panel-show").hidden = !this.canShow;
    $("panel-words").hidden = true;
    $("panel-neighbours").hidden = true;
  }

  fillRows({ rows }) {
    const share = rows / Math.max(1, this.model.rows);
    const percent = share < 0.001 ? "less than 0.1" : (100 * share).toFixed(1);
    $("panel-rows").textContent = rows
      ? `On ${rows.toLocaleString("en")} training ${rows === 1 ? "document" : "documents"} (${percent} %)`
      : "On no training document: known by its description only";
  }

  fillWords({ supporting, opposing }) {
    const most = supporting[0]?.weight ?? 0;
    const item = ({ word, weight }) =>
      element("li", weight > most / 2 ? "strong" : "", element("bdi", "", String(word)));
    $("panel-for").replaceChildren(...supporting.map(item));
    $("panel-against").replaceChildren(...opposing.slice(0, 8).map(item));
    $("against-title").hidden = !opposing.length;
    $("panel-words").hidden = !supporting.length;
  }

  fillSimilar(similar) {
    const item = (label) => {
      const score = element("span", "score", label.similarity.toFixed(2));
      score.title = "Cosine of the two vectors";
      const name = element("span", "", ...shown(label));
      return element("li", "", button("", () => this.open(label), name, score));
    };
    $("panel-similar").replaceChildren(...similar.filter((s) => s.similarity > 0).map(item));
    $("panel-neighbours").hidden = !$("panel-similar").children.length;
  }

  close() {
    this.number++;
    if (this.name !== null) history.replaceState(null, "", location.pathname);
    $("panel").hidden = true;
    if (this.opener?.isConnected) this.opener.focus({ preventScroll: true });
  }
}
