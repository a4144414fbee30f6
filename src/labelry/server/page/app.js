// Starts the page: what the server serves, and the parts that show it.

import { $, Problem, ask, hasKey, pause, setKey } from "./api.js";
import { Files } from "./files.js";
import { LabelMap, decode } from "./map.js";
import { Panel } from "./panel.js";
import { Search } from "./search.js";
import { Tags } from "./tags.js";

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
    describe(await ask("/v1/model"));
    complain(null);
    $("key-form").hidden = true;
    $("main").hidden = false;
    if (!parts.tags) build();
    if (matchMedia("(hover: hover)").matches) $("text").focus();
  } catch (error) {
    complain(error);
  }
}

function describe(description) {
  Object.assign(model, description);
  fingerprint = model.model;
  const labels = model.labels.toLocaleString("en");
  $("model").textContent = `${model.name} · ${labels} labels, learnt from ${model.rows.toLocaleString("en")} texts`;
  document.title = `${model.name} · labelry`;
}

function build() {
  const open = (label) => parts.panel.open(label);
  parts.panel = new Panel({ model, complain, show: (label) => parts.map?.show(label) });
  parts.tags = new Tags({ model, complain, open, answered });
  parts.files = new Files({ model, settings: () => parts.tags.settings() });
  parts.search = new Search({ open, complain });
  drawMap();
}

/** Tags have come: light them on the map; see whether another model gave them. */
async function answered(tags, source) {
  if (!source || source === fingerprint) return parts.map?.light(tags);
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
  $("map-section").hidden = !model.compares_labels;
  if (!model.compares_labels) return;
  $("map-frame").hidden = true;
  $("map-waiting").hidden = false;
  while (wanted === fingerprint) {
    try {
      const data = decode(await ask("/v1/map", { binary: true }));
      $("map-waiting").hidden = true;
      $("map-frame").hidden = false;
      parts.map ??= new LabelMap({ open: (label) => parts.panel.open(label) });
      parts.panel.canShow = true;
      parts.map.setData(data);
      parts.map.light(parts.tags.shown());
      return;
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      if (error.status !== 503) {
        $("map-section").hidden = true;
        return;
      }
      await pause(1000);
    }
  }
}

start();
