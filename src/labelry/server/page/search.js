// Labels by a part of their name.

import { $, ask, button, element, shown } from "./api.js";

export class Search {
  constructor({ open, complain }) {
    Object.assign(this, { open, complain, number: 0 });
    const field = $("find");
    field.addEventListener("input", () => {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.request(), 120);
    });
    $("map-section").addEventListener("keydown", (event) => this.key(event));
    addEventListener("pointerdown", (event) => {
      if (!event.target.closest(".find")) this.hide();
    });
  }

  async request() {
    const number = ++this.number;
    const query = $("find").value.trim();
    if (!query) return this.hide();
    try {
      const answer = await ask(`/v1/labels?limit=12&query=${encodeURIComponent(query)}`);
      if (number === this.number) this.show(answer);
    } catch (error) {
      this.complain(error);
    }
  }

  show({ labels, more }) {
    const item = (label) => {
      const choose = () => {
        this.hide();
        this.open(label);
      };
      return element("li", "", button("", choose, ...shown(label)));
    };
    const none = element("li", "quiet", "No label has this in its name.");
    $("found").replaceChildren(...(labels.length ? labels.map(item) : [none]));
    $("found").hidden = false;
    $("found-said").textContent = `${labels.length}${more ? " or more" : ""} labels found`;
  }

  hide() {
    this.number++;
    $("found").hidden = true;
  }

  /** Up and down through the field and what was found; Enter takes the first. */
  key(event) {
    if ($("found").hidden || !event.target.closest(".find")) return;
    const stops = [$("find"), ...$("found").querySelectorAll("button")];
    const here = stops.indexOf(document.activeElement);
    if (event.key === "Escape") {
      this.hide();
      $("find").focus();
      event.stopPropagation();
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      const next = here + (event.key === "ArrowDown" ? 1 : -1);
      stops[Math.min(stops.length - 1, Math.max(0, next))].focus();
      event.preventDefault();
    } else if (event.key === "Enter" && here === 0) {
      stops[1]?.click();
    }
  }
}
