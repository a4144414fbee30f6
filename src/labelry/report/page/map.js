// The label map: moved, zoomed and asked with pointer, fingers or keys.

import { Painter, at, colourOf, nameOf } from "./map-painter.js";

const $ = (id) => document.getElementById(id);

const MOST_NAMES = 40; // of frequent labels, on the map at a time
const CELL = [150, 40]; // CSS pixels in which one of them is named
const REST = 140; // milliseconds without a movement, before names are looked up
const REACH = 14; // CSS pixels from a point at which it is meant
const CLICK = 5; // CSS pixels that a pointer may move between down and up
const DOUBLE = 250; // milliseconds in which a second click may come
const STRETCH = 1.6; // at most, of the longer side of the frame
const LEAST_ZOOM = 0.7;
const MOST_ZOOM = 400;

/** The arrays of GET /v1/map; see docs/server.md. */
export function decode(buffer) {
  const size = new DataView(buffer).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, size)));
  const n = head.labels;
  const places = new Uint16Array(buffer, 4 + size, 2 * n);
  const x = new Float32Array(n);
  const y = new Float32Array(n);
  for (let i = 0; i < n; i++) {
    x[i] = places[2 * i] / 65535;
    y[i] = 1 - places[2 * i + 1] / 65535; // screens count downwards
  }
  const groups = new Uint8Array(buffer, 4 + size + 4 * n, n);
  const frequency = new Uint8Array(buffer, 4 + size + 5 * n, n);
  // Frequent labels are drawn last, so that they lie on top.
  const order = new Uint32Array(n).map((_, i) => i).sort((a, b) => frequency[a] - frequency[b]);
  return { n, x, y, groups, frequency, order, leaders: head.leaders, words: head.words };
}

export class LabelMap {
  /** `open` acts when a label is chosen; `find` returns a promise of the labels with some ids. */
  constructor({ open, find }) {
    Object.assign(this, { open, find });
    this.canvas = $("map");
    this.painter = new Painter(this.canvas);
    this.lit = [];
    this.fingers = new Map(); // pointers that are down, by id
    this.listen();
    new ResizeObserver(() => this.redraw()).observe(this.canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.redraw());
  }

  setData(data) {
    this.data = data;
    this.labels = new Map(); // what is known of labels, by id
    this.named = []; // ids of frequent labels in view, most frequent first
    this.chosen = null;
    this.only = null; // the group that the legend was asked for
    this.extents = extents(data);
    this.view = { x: 0.5, y: 0.5, zoom: 1 };
    this.canvas.setAttribute("aria-label", `Map of ${data.n.toLocaleString("en")} labels`);
    this.legend();
    this.redraw();
  }

  /** Light up the labels of a text. */
  light(tags) {
    this.lit = tags;
    if (!this.data) return;
    for (const tag of tags) this.labels.set(tag.id, tag);
    this.redraw();
  }

  /** Bring a label into the middle. */
  show(label) {
    this.chosen = label.id;
    this.labels.set(label.id, label);
    $("map-frame").scrollIntoView({ block: "center" });
    const zoom = Math.max(this.view.zoom, Math.min(12, Math.sqrt(this.data.n) / 12), 2);
    this.glide({ x: this.data.x[label.id], y: this.data.y[label.id], zoom });
  }

  async legend() {
    const { leaders, words } = this.data;
    await this.learn(leaders.flat());
    const items = leaders.map((ids, group) => {
      const names = ids.map((id) => this.labels.get(id)).filter(Boolean).map(nameOf);
      const item = document.createElement("button");
      item.type = "button";
      item.title = names.join(", ");
      item.setAttribute("aria-pressed", "false");
      const name = document.createElement("bdi");
      name.textContent = words[group] || names[0] || `Group ${group + 1}`;
      item.append(swatch(group), name);
      item.addEventListener("click", () => this.single(this.only === group ? null : group));
      return item;
    });
    $("legend").replaceChildren(...(items.length > 1 ? items : []));
  }

  /** Show one group, with the others dimmed; or all (null). */
  single(group) {
    this.only = group;
    for (const [i, item] of [...$("legend").children].entries()) {
      item.setAttribute("aria-pressed", String(i === group));
    }
    this.redraw();
  }

  /** Get the names of labels that are not known yet. */
  async learn(ids) {
    const missing = ids.filter((id) => !this.labels.has(id));
    if (!missing.length) return;
    const labels = this.labels;
    for (const label of await this.find(missing).catch(() => [])) labels.set(label.id, label);
  }

  // Drawing

  redraw() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      if (!this.data || !this.canvas.clientWidth) return;
      this.painter.paint(this);
    });
    clearTimeout(this.resting);
    this.resting = setTimeout(() => this.nameFrequent(), REST);
  }

  /** CSS pixels that the unit square is wide and high, and where its corner lies. */
  measures() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    const least = 0.92 * Math.min(width, height);
    // Directions mean nothing on this map, so it may fill more of a frame that is not square.
    const across = Math.min(0.92 * width, STRETCH * least) * this.view.zoom;
    const down = Math.min(0.92 * height, STRETCH * least) * this.view.zoom;
    const [left, top] = [width / 2 - this.view.x * across, height / 2 - this.view.y * down];
    return { width, height, across, down, left, top };
  }

  /** Of the labels in view, name the most frequent one of each part of the screen. */
  async nameFrequent() {
    if (!this.data || !this.canvas.clientWidth) return;
    const { x, y, order, groups } = this.data;
    const { width, height, across, down, left, top } = this.measures();
    const taken = new Set();
    const chosen = [];
    for (let s = order.length - 1; s >= 0 && chosen.length < MOST_NAMES; s--) {
      if (this.only !== null && groups[order[s]] !== this.only) continue;
      const px = x[order[s]] * across + left;
      const py = y[order[s]] * down + top;
      if (px < 0 || py < 0 || px > width || py > height) continue;
      const cell = `${Math.floor(px / CELL[0])} ${Math.floor(py / CELL[1])}`;
      if (taken.has(cell)) continue;
      taken.add(cell);
      chosen.push(order[s]);
    }
    const before = String(this.named);
    await this.learn(chosen);
    this.named = chosen;
    if (String(chosen) !== before) {
      this.frame ??= requestAnimationFrame(() => {
        this.frame = null;
        this.painter.paint(this);
      });
    }
  }

  // Moving

  pan(dx, dy) {
    const { across, down } = this.measures();
    this.go({ ...this.view, x: this.view.x - dx / across, y: this.view.y - dy / down });
  }

  /** Zoom, with what lies at a place of the screen staying there. */
  zoom(factor, px = this.canvas.clientWidth / 2, py = this.canvas.clientHeight / 2) {
    const { across, down, left, top } = this.measures();
    const zoom = Math.min(MOST_ZOOM, Math.max(LEAST_ZOOM, this.view.zoom * factor));
    const share = 1 - this.view.zoom / zoom;
    const [x, y] = [(px - left) / across, (py - top) / down];
    this.go({
      x: this.view.x + (x - this.view.x) * share,
      y: this.view.y + (y - this.view.y) * share,
      zoom,
    });
  }

  go(view) {
    const within = (value) => Math.min(1, Math.max(0, value));
    this.view = { x: within(view.x), y: within(view.y), zoom: view.zoom };
    this.redraw();
  }

  glide(goal) {
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) return this.go(goal);
    const from = this.view;
    const start = performance.now();
    const flight = (this.flight = {});
    const step = () => {
      if (this.flight !== flight) return;
      const t = Math.min(1, (performance.now() - start) / 400);
      const s = t * t * (3 - 2 * t);
      this.go({
        x: from.x + (goal.x - from.x) * s,
        y: from.y + (goal.y - from.y) * s,
        zoom: from.zoom * (goal.zoom / from.zoom) ** s,
      });
      if (t < 1) requestAnimationFrame(step);
    };
    step();
  }

  // Asking

  /** The label whose point is nearest to a place of the screen, within reach; or null. */
  nearest(px, py, reach = REACH) {
    const { x, y, n } = this.data;
    const { across, down, left, top } = this.measures();
    let best = reach ** 2;
    let found = null;
    for (let i = 0; i < n; i++) {
      const distance = (x[i] * across + left - px) ** 2 + (y[i] * down + top - py) ** 2;
      if (distance < best) {
        best = distance;
        found = i;
      }
    }
    return found;
  }

  async hover(id) {
    if (id === this.hovered) return;
    this.hovered = id;
    $("map-name").hidden = true;
    if (id === null) return;
    await this.learn([id]);
    const label = this.labels.get(id);
    if (this.hovered !== id || !label) return;
    const description = label.description ? ` ${label.description}` : "";
    const name = document.createElement("bdi");
    name.textContent = `${label.label}${description}`;
    $("map-name").replaceChildren(name);
    $("map-name").hidden = false;
    this.placeName();
  }

  placeName() {
    const measures = this.measures();
    const [px, py] = at(this, measures, this.hovered);
    const box = $("map-name");
    const x = Math.min(Math.max(4, px + 12), measures.width - box.offsetWidth - 4);
    const y = py - box.offsetHeight - 8 < 4 ? py + 12 : py - box.offsetHeight - 8;
    box.style.transform = `translate(${x}px, ${y}px)`;
  }

  async choose(id) {
    await this.learn([id]);
    if (!this.labels.has(id)) return;
    this.chosen = id;
    this.redraw();
    this.open(this.labels.get(id));
  }

  // Pointer and keys

  listen() {
    const on = (name, handler) => this.canvas.addEventListener(name, handler, { passive: false });
    on("pointerdown", (event) => this.down(event));
    on("pointermove", (event) => this.move(event));
    for (const name of ["pointerup", "pointercancel"]) on(name, (event) => this.up(event));
    on("pointerleave", () => this.hover(null));
    on("dblclick", (event) => {
      clearTimeout(this.clicked);
      this.zoom(event.shiftKey ? 0.5 : 2, event.offsetX, event.offsetY);
    });
    on("wheel", (event) => {
      // The wheel moves the page until the map is clicked; a pinch on a touchpad has ctrlKey.
      if (!event.ctrlKey && document.activeElement !== this.canvas) return;
      event.preventDefault();
      this.hover(null);
      const lines = event.deltaMode === 1 ? 16 : 1;
      this.zoom(Math.exp(-event.deltaY * lines * (event.ctrlKey ? 0.01 : 0.002)), event.offsetX, event.offsetY);
    });
    on("keydown", (event) => this.key(event));
    on("blur", () => this.aim(false));
    $("zoom-in").addEventListener("click", () => this.zoom(1.6));
    $("zoom-out").addEventListener("click", () => this.zoom(1 / 1.6));
    $("zoom-all").addEventListener("click", () => this.glide({ x: 0.5, y: 0.5, zoom: 1 }));
  }

  down(event) {
    this.flight = null;
    this.canvas.focus({ preventScroll: true });
    this.aim(false);
    this.canvas.setPointerCapture(event.pointerId);
    this.fingers.set(event.pointerId, [event.offsetX, event.offsetY]);
    this.start = this.fingers.size === 1 ? [event.offsetX, event.offsetY] : null;
  }

  move(event) {
    const at = [event.offsetX, event.offsetY];
    const before = this.fingers.get(event.pointerId);
    if (!before) return this.data && this.hover(this.nearest(...at));
    if (this.start && Math.hypot(at[0] - this.start[0], at[1] - this.start[1]) > CLICK) {
      this.start = null;
      this.hover(null);
    }
    if (this.fingers.size === 2) {
      const [, other] = [...this.fingers].find(([id]) => id !== event.pointerId);
      const span = (a) => Math.hypot(a[0] - other[0], a[1] - other[1]) || 1;
      this.zoom(span(at) / span(before), (at[0] + other[0]) / 2, (at[1] + other[1]) / 2);
      this.pan((at[0] - before[0]) / 2, (at[1] - before[1]) / 2);
    } else if (!this.start) {
      this.pan(at[0] - before[0], at[1] - before[1]);
    }
    if (!this.start) this.fingers.set(event.pointerId, at);
  }

  up(event) {
    this.fingers.delete(event.pointerId);
    if (event.type === "pointercancel" || !this.start) return;
    this.start = null;
    const id = this.nearest(event.offsetX, event.offsetY);
    this.hover(id);
    clearTimeout(this.clicked);
    if (id !== null) this.clicked = setTimeout(() => this.choose(id), DOUBLE);
  }

  key(event) {
    const step = event.shiftKey ? 200 : 60;
    const actions = {
      ArrowLeft: () => this.pan(step, 0),
      ArrowRight: () => this.pan(-step, 0),
      ArrowUp: () => this.pan(0, step),
      ArrowDown: () => this.pan(0, -step),
      "+": () => this.zoom(1.4),
      "=": () => this.zoom(1.4),
      "-": () => this.zoom(1 / 1.4),
      0: () => this.glide({ x: 0.5, y: 0.5, zoom: 1 }),
      Enter: () => this.hovered !== null && this.choose(this.hovered),
    };
    if (!(event.key in actions) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    this.flight = null;
    if (event.key !== "Enter") this.aim(true);
    else if (!this.aiming) return this.aim(true);
    actions[event.key]();
    if (event.key !== "Enter") this.aimed();
  }

  /** With the keyboard, the middle of the map is what the pointer is otherwise. */
  aim(on) {
    if (this.aiming === on) return;
    this.aiming = on;
    if (on) this.aimed();
    else this.hover(null);
    this.redraw();
  }

  aimed() {
    const { clientWidth, clientHeight } = this.canvas;
    this.hover(null);
    this.hover(this.nearest(clientWidth / 2, clientHeight / 2, 60));
  }
}

/** The middle of each group from left to right, and how far it goes up and down, but for strays. */
function extents({ n, x, y, groups, leaders }) {
  const members = leaders.map(() => []);
  for (let i = 0; i < n; i++) members[groups[i]]?.push(i);
  return members.map((ids) => {
    const [across, down] = [x, y].map((values) => ids.map((i) => values[i]).sort((a, b) => a - b));
    const place = (share) => Math.floor(share * ids.length);
    return { middle: across[place(0.5)], top: down[place(0.05)], bottom: down[place(0.95)] };
  });
}

function swatch(group) {
  const disc = document.createElement("i");
  disc.style.background = `var(${colourOf(group)})`;
  return disc;
}
