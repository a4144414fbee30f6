// Draws the label map. Points are written into an array of pixels, which takes a few
// milliseconds for 100,000 of them and no graphics card; names are drawn over it.

const SIZES = 4; // of points, by how frequent a label is
const COLOURS = 12; // in the style sheet; groups share them
const GREY = 255; // the group of labels that are in none
const LONGEST = 26; // characters of a name on the map that is cut because it has no room
const WIDEST = 0.4; // share of the width of the map that a name may take
const DIM = 45; // opacity of labels outside the group that was chosen, of 255

export const nameOf = (label) => label.description || String(label.label);

/** The name of the colour of a group in the style sheet; labels between groups are grey. */
export const colourOf = (group) => (group === GREY ? "--grey" : `--group-${group % COLOURS}`);

/** The colour of a group, as a pixel without its opacity. */
const packed = (style, group) => {
  const value = parseInt(style.getPropertyValue(colourOf(group)).trim().slice(1), 16);
  return ((value & 0xff) << 16) | (value & 0xff00) | (value >> 16); // ABGR without A
};

export class Painter {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.widths = new Map(); // of names, in CSS pixels
  }

  paint(map) {
    const ratio = devicePixelRatio || 1;
    const measures = map.measures();
    const [width, height] = [Math.round(measures.width * ratio), Math.round(measures.height * ratio)];
    if (this.canvas.width !== width || this.canvas.height !== height) {
      this.canvas.width = width;
      this.canvas.height = height;
    }
    this.paintPoints(map, measures, ratio);
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.paintNames(map, measures);
    if (map.aiming) this.paintAim(measures);
  }

  paintPoints({ data, view, lit, only }, measures, ratio) {
    const { width, height, left, top } = measures;
    // As large as leaves some room between them.
    const room = Math.sqrt((width * height) / data.n) * view.zoom;
    const radius = Math.min(6, Math.max(0.7, 0.16 * room)) * ratio;
    const margin = Math.ceil(1.6 * radius) + 2;
    const across = this.canvas.width + 2 * margin;
    const down = this.canvas.height + 2 * margin;
    if (this.image?.width !== across || this.image?.height !== down) {
      this.image = new ImageData(across, down);
      this.pixels = new Uint32Array(this.image.data.buffer);
    }
    const { pixels } = this;
    pixels.fill(0);
    const most = lit.length ? 140 : 235; // opacity: others step back where some are lit
    const stampsOf = (opacity) => Array.from({ length: SIZES }, (_, size) =>
      stamp(radius * (0.75 + (0.75 * size) / (SIZES - 1)), across, opacity));
    const stamps = stampsOf(most);
    const dimmed = only === null ? stamps : stampsOf(DIM);
    const { x, y, groups, frequency, order } = data;
    const style = getComputedStyle(this.canvas);
    const colours = Uint32Array.from({ length: GREY + 1 }, (_, group) => packed(style, group));
    const [sx, sy] = [measures.across * ratio, measures.down * ratio];
    const [dx, dy] = [left * ratio + margin, top * ratio + margin];
    const [right, bottom] = [across - margin, down - margin];
    for (let s = 0; s < order.length; s++) {
      const i = order[s];
      const px = Math.round(x[i] * sx + dx);
      const py = Math.round(y[i] * sy + dy);
      if (px < margin || py < margin || px >= right || py >= bottom) continue;
      const shown = only === null || groups[i] === only ? stamps : dimmed;
      const { offsets, alphas } = shown[(frequency[i] * SIZES) >> 8];
      const colour = colours[groups[i]];
      const middle = py * across + px;
      for (let j = 0; j < offsets.length; j++) {
        const at = middle + offsets[j];
        if (alphas[j] >= pixels[at] >>> 24) pixels[at] = colour | (alphas[j] << 24);
      }
    }
    this.context.putImageData(this.image, -margin, -margin);
  }

  paintNames(map, measures) {
    const style = getComputedStyle(this.canvas);
    const colours = {
      ink: style.getPropertyValue("--ink"),
      card: style.getPropertyValue("--card"),
      accent: style.getPropertyValue("--accent"),
    };
    const boxes = [];
    const lit = map.lit.map((tag) => tag.id);
    const special = map.chosen === null || lit.includes(map.chosen) ? lit : [...lit, map.chosen];
    for (const id of special) this.paintLit(at(map, measures, id), colours);
    for (const id of special) this.paintName(map, measures, id, colours, boxes, true);
    this.paintWords(map, measures, colours, boxes);
    for (const id of map.named) {
      if (!special.includes(id)) this.paintName(map, measures, id, colours, boxes, false);
    }
  }

  paintLit([px, py], { card, accent }) {
    const { context } = this;
    context.beginPath();
    context.arc(px, py, 7, 0, 2 * Math.PI);
    context.fillStyle = accent;
    context.strokeStyle = card;
    context.lineWidth = 2.5;
    context.fill();
    context.stroke();
  }

  /** The words of the groups, large, above or below each. */
  paintWords({ data, only, extents }, measures, { ink, card }, boxes) {
    const { context } = this;
    const size = Math.min(22, Math.max(14, measures.width / 48));
    context.font = `700 ${size}px system-ui, sans-serif`;
    for (const [group, word] of data.words.entries()) {
      if (!word || (only !== null && only !== group)) continue;
      const width = context.measureText(word).width;
      const { middle, top, bottom } = extents[group];
      const x = middle * measures.across + measures.left - width / 2;
      const place = [top * measures.down - size, bottom * measures.down + size, top * measures.down]
        .map((y) => [x, y + measures.top])
        .find(([, y]) => reserved(x, y, width, size / 2, measures, boxes));
      if (place) this.write(word, place, ink, card, 4);
    }
  }

  write(text, [x, y], colour, card, halo) {
    const { context } = this;
    context.textBaseline = "middle";
    context.lineJoin = "round";
    context.lineWidth = halo;
    context.strokeStyle = card;
    context.strokeText(text, x, y);
    context.fillStyle = colour;
    context.fillText(text, x, y);
  }

  /** A name beside its point, if no other is there; it is cut if there is no room for all of it. */
  paintName(map, measures, id, { ink, card, accent }, boxes, lit) {
    const label = map.labels.get(id);
    if (!label) return;
    const [px, py] = at(map, measures, id);
    if (px < -20 || py < -20 || px > measures.width + 20 || py > measures.height + 20) return;
    const { context } = this;
    context.font = `${lit ? 650 : 400} ${lit ? 14 : 12}px system-ui, sans-serif`;
    for (const name of new Set([nameOf(label), shortened(nameOf(label))])) {
      const key = `${lit} ${name}`;
      if (!this.widths.has(key)) this.widths.set(key, context.measureText(name).width);
      const width = this.widths.get(key);
      const short = width <= WIDEST * measures.width || name.length <= LONGEST;
      const place = short && free(px, py, width, lit ? 11 : 7, measures, boxes);
      if (place) return this.write(name, place, lit ? accent : ink, card, 4);
    }
  }

  paintAim({ width, height }) {
    const { context } = this;
    context.strokeStyle = getComputedStyle(this.canvas).getPropertyValue("--accent");
    context.lineWidth = 2;
    context.beginPath();
    context.arc(width / 2, height / 2, 12, 0, 2 * Math.PI);
    context.stroke();
  }
}

/** Where a label lies, in CSS pixels. */
export const at = ({ data }, { across, down, left, top }, id) => [
  data.x[id] * across + left, data.y[id] * down + top,
];

/** Where a name can stand: right of its point, left of it, below or above, or nowhere (null). */
function free(px, py, width, gap, measures, boxes) {
  const centred = Math.min(Math.max(4, px - width / 2), measures.width - width - 4);
  const places = [[px + gap, py], [px - gap - width, py], [centred, py + gap + 7], [centred, py - gap - 7]];
  return places.find(([x, y]) => reserved(x, y, width, 9, measures, boxes)) ?? null;
}

/** Keep the place for a text, if it is on the map and no other text is there. */
function reserved(x, y, width, half, measures, boxes) {
  if (x < 4 || x + width > measures.width - 4) return false;
  if (y < half + 2 || y > measures.height - half - 2) return false;
  const box = [x - 3, y - half, x + width + 3, y + half];
  if (boxes.some((b) => box[0] < b[2] && b[0] < box[2] && box[1] < b[3] && b[1] < box[3])) return false;
  boxes.push(box);
  return true;
}

/** A long name up to the last word that has room. */
function shortened(name) {
  const letters = Array.from(name);
  if (letters.length <= LONGEST) return name;
  const start = letters.slice(0, LONGEST - 1).join("");
  return `${start.replace(/(?<=.{13})\s\S*$/u, "")}…`;
}

/** The pixels of a disc, as distances in an image so many pixels wide, and their opacities. */
function stamp(radius, across, most) {
  const offsets = [];
  const alphas = [];
  const reach = Math.ceil(radius);
  for (let dy = -reach; dy <= reach; dy++) {
    for (let dx = -reach; dx <= reach; dx++) {
      const alpha = Math.round(most * Math.min(1, radius + 0.5 - Math.hypot(dx, dy)));
      if (alpha > 20) {
        offsets.push(dy * across + dx);
        alphas.push(alpha);
      }
    }
  }
  return { offsets: Int32Array.from(offsets), alphas: Uint8Array.from(alphas) };
}
