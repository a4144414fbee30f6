// The labels of the report: a table that is sorted and searched, and the map.

import { LabelMap, decode } from "./map.js";

const STEP = 15; // rows that are shown at first, and as many more each time
const table = document.getElementById("label-table");
const canvas = document.getElementById("map");
const columns = table ? JSON.parse(table.dataset.labels) : { names: [] };

const labels = columns.names.map((name, id) => {
  const [train, here, predicted, right] = ["train", "here", "predicted", "right"].map((key) => columns[key][id]);
  return {
    id, label: name, description: columns.descriptions[id], train, here,
    precision: right / predicted, recall: right / here, f1: (2 * right) / (here + predicted),
    text: `${name} ${columns.descriptions[id]}`.toLowerCase(),
  };
});

const map = canvas && new LabelMap({
  open: (label) => searchFor(label.label),
  find: async (ids) => ids.filter((id) => id < labels.length).map((id) => labels[id]),
});

// The table

const sorted = { key: "f1", down: false };
let shown = STEP;

const percent = (share) => (Number.isNaN(share) ? "–" : (100 * share).toFixed(0));
const compare = new Intl.Collator("en", { numeric: true }).compare;

function made(name, className, ...children) {
  const element = document.createElement(name);
  if (className) element.className = className;
  element.append(...children);
  return element;
}

/** The labels that are asked for, in order; those without a value come last. */
function chosen() {
  const { key, down } = sorted;
  const part = document.getElementById("label-search").value.trim().toLowerCase();
  const least = Number(document.getElementById("label-rows").value) || 0;
  const found = labels.filter((label) => label.here >= least && label.text.includes(part));
  const sign = down ? -1 : 1;
  return found.sort((a, b) => {
    if (key === "label") return sign * compare(a.label, b.label);
    const [x, y] = [a[key], b[key]];
    if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y);
    return sign * (x - y) || b.here - a.here || a.id - b.id;
  });
}

function row(label) {
  const name = made("bdi", "", label.label);
  const head = made("th", "", made("b", "", name));
  head.scope = "row";
  if (map) {
    const button = made("button", "link", name);
    button.type = "button";
    button.title = "Show on the map";
    button.addEventListener("click", () => map.show(label));
    head.replaceChildren(button);
  }
  if (label.description) head.append(" ", made("span", "title", made("bdi", "", label.description)));
  const numbers = [label.train, label.here].map((count) => count.toLocaleString("en"));
  const shares = [label.precision, label.recall, label.f1].map(percent);
  const cells = [...numbers, ...shares].map((text) => made("td", "number", text));
  cells[0].classList.add("roomy");
  cells[4].classList.add("roomy");
  return made("tr", "", head, ...cells);
}

function fill() {
  const found = chosen();
  table.querySelector("tbody").replaceChildren(...found.slice(0, shown).map(row));
  for (const head of table.querySelectorAll("th[data-key]")) {
    const order = sorted.down ? "descending" : "ascending";
    head.setAttribute("aria-sort", head.dataset.key === sorted.key ? order : "none");
  }
  const all = labels.length.toLocaleString("en");
  const said = found.length === labels.length ? all : `${found.length.toLocaleString("en")} of ${all}`;
  document.getElementById("label-said").textContent = `${said} labels`;
  document.getElementById("label-more").hidden = found.length <= shown;
}

function searchFor(text) {
  document.getElementById("label-search").value = text;
  document.getElementById("label-rows").value = 0;
  fill();
  document.getElementById("labels").scrollIntoView();
}

if (table) {
  for (const head of table.querySelectorAll("th[data-key]")) {
    head.querySelector("button").addEventListener("click", () => {
      const { key } = head.dataset;
      sorted.down = sorted.key === key ? !sorted.down : key !== "label";
      sorted.key = key;
      fill();
    });
  }
  for (const id of ["label-search", "label-rows"]) {
    document.getElementById(id).addEventListener("input", () => {
      shown = STEP;
      fill();
    });
  }
  document.getElementById("label-more").addEventListener("click", () => {
    shown += STEP * 4;
    fill();
  });
  fill();
}

if (map) map.setData(decode(Uint8Array.from(atob(canvas.dataset.map), (c) => c.charCodeAt(0)).buffer));

// What is folded on the screen is printed.
addEventListener("beforeprint", () => {
  for (const part of document.querySelectorAll("details")) part.open = true;
});
