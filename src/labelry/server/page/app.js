// Starts the page: what the server serves, and the parts that show it.

import { $, Problem, ask, button, element, hasKey, pause, setKey, shown } from "./api.js";
import { Files } from "./files.js";
import { Labels } from "./labels.js";
import { LabelMap, decode } from "./map.js";
import { Panel } from "./panel.js";
import { Search } from "./search.js";

const parts = {};
const model = {}; // what the server says of the model; the parts of the page share it
let fingerprint = null;

function complain(error) {
  if (error?.status === 401) return askForKey(true);
  $("trouble").textContent = error ? error.message : "";
  $("trouble").hidden = !error;
}

function askForKey(refused) {
  const wrong = refused && hasKey();
  setKey(null);
  $("main").hidden = true;
  $("key-form").hidden = false;
  $("trouble").hidden = !wrong;
  $("trouble").textContent = wrong ? "The server does not accept this key." : "";
  $("key").value = "";
  $("key").focus();
}

$("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  setKey($("key").value.trim());
  start();
});

async function start() {
  try {
    if (!hasKey() && (await ask("/health/ready")).needs_key) return askForKey(false);
    describe(await ask("/v1/model"));
    complain(null);
    $("key-form").hidden = true;
    $("main").hidden = false;
    if (!parts.labels) build();
    if (matchMedia("(hover: hover)").matches && !location.hash) $("text").focus();
    openLinked();
  } catch (error) {
    complain(error);
  }
}

function describe(description) {
  Object.assign(model, description);
  fingerprint = model.model;
  $("title").textContent = model.title;
  $("description").textContent = model.description;
  const documents = `${count(model.labels)} labels, learnt from ${count(model.rows)} documents`;
  $("facts").textContent = `${documents} on ${day(model.trained_at)}.`;
  document.title = `${model.title} · labelry`;
  const examples = model.examples.slice(0, 3).map((text) =>
    element("li", "", button("example", () => parts.labels.write(text), element("bdi", "", text))));
  $("examples").querySelector("ul").replaceChildren(...examples);
  $("examples").hidden = !examples.length;
  const frequent = model.frequent_labels.map((label) =>
    element("li", "", button("", () => parts.panel.open(label), ...shown(label),
      element("span", "quiet", count(label.rows)))));
  $("frequent").querySelector("ul").replaceChildren(...frequent);
  $("frequent").querySelector("ul").classList.toggle("described", model.frequent_labels.some((label) => label.description));
}

const count = (number) => number.toLocaleString("en");

const day = (moment) =>
  new Date(moment).toLocaleDateString("en-GB", { day: "numeric", month: "long", year: "numeric" });

function build() {
  const open = (label) => parts.panel.open(label);
  parts.panel = new Panel({ model, complain, show: (label) => parts.map?.show(label) });
  parts.labels = new Labels({ model, complain, open, answered });
  parts.files = new Files({ model, settings: () => parts.labels.settings() });
  parts.search = new Search({ open, complain });
  addEventListener("hashchange", openLinked);
  drawMap();
}

/** Open the label that the address names: #label=NAME. */
async function openLinked() {
  const name = new URLSearchParams(location.hash.slice(1)).get("label");
  if (name === null || name === parts.panel.name) return;
  try {
    const [label] = (await ask(`/v1/labels?label=${encodeURIComponent(name)}`)).labels;
    if (label) parts.panel.open(label);
    else complain({ message: `This model has no label “${name.slice(0, 100)}”.` });
  } catch (error) {
    complain(error);
  }
}

/** Labels have come: light them on the map; see whether another model gave them. */
async function answered(labels, source) {
  if (!source || source === fingerprint) return parts.map?.light(labels);
  fingerprint = source;
  try {
    describe(await ask("/v1/model"));
  } catch (error) {
    return complain(error);
  }
  parts.panel.close();
  drawMap();
}

/** Show the map of the model when it is drawn, if its labels have vectors. */
async function drawMap() {
  const wanted = fingerprint;
  parts.panel.canShow = false;
  $("map-section").hidden = $("to-map").hidden = !model.compares_labels;
  if (!model.compares_labels) return;
  $("map-frame").hidden = true;
  $("map-waiting").hidden = false;
  while (wanted === fingerprint) {
    try {
      const data = decode(await ask("/v1/map", { binary: true }));
      $("map-waiting").hidden = true;
      $("map-frame").hidden = false;
      parts.map ??= new LabelMap({
        open: (label) => parts.panel.open(label),
        find: async (ids) => (await ask(`/v1/labels?ids=${ids.join(",")}`)).labels,
      });
      parts.panel.canShow = true;
      parts.map.setData(data);
      parts.map.light(parts.labels.shown());
      return;
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      if (error.status !== 202) {
        $("map-section").hidden = true;
        return;
      }
      $("map-waiting").firstElementChild.textContent = error.message;
      await pause(1000);
    }
  }
}

start();
