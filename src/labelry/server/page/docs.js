// The forms of the API page: each sends its request, and shows the answer and the same with curl.

import { $, hasKey, keyHeaders, setKey } from "./api.js";

const MOST_SHOWN = 20_000; // characters of an answer

/** The address and the body of a request, as a form says. */
function wanted(form) {
  let path = form.dataset.path;
  const query = new URLSearchParams();
  for (const field of form.querySelectorAll("input")) {
    if (field.dataset.in === "path") path = path.replace(`{${field.name}}`, encodeURIComponent(field.value));
    else if (field.value) query.set(field.name, field.value);
  }
  return { path: query.size ? `${path}?${query}` : path, body: form.elements.body?.value };
}

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

function showCurl(form) {
  const { path, body } = wanted(form);
  const parts = ["curl", quoted(location.origin + path)];
  if (hasKey()) parts.push("-H", '"X-API-Key: $LABELRY_API_KEY"');
  if (body !== undefined) parts.push("--json", quoted(body));
  form.querySelector(".curl").textContent = parts.join(" ");
}

async function send(form) {
  const { path, body } = wanted(form);
  const start = performance.now();
  const said = form.querySelector(".said");
  try {
    const answer = await fetch(path, {
      method: form.dataset.method,
      body,
      headers: { ...keyHeaders(), ...(body === undefined ? {} : { "Content-Type": "application/json" }) },
    });
    form.querySelector(".answer").textContent = await shown(answer);
    form.querySelector(".answer").previousElementSibling.textContent = "The answer";
    said.textContent = `${answer.status} in ${Math.max(1, Math.round(performance.now() - start))} ms`;
    $("key-field").hidden &&= answer.status !== 401;
  } catch {
    said.textContent = "The server does not answer.";
  }
}

async function shown(answer) {
  const kind = answer.headers.get("content-type") ?? "";
  if (kind.startsWith("application/octet-stream")) {
    return `${(await answer.arrayBuffer()).byteLength.toLocaleString("en")} bytes of ${kind}`;
  }
  const text = await answer.text();
  const pretty = kind.startsWith("application/json") ? JSON.stringify(JSON.parse(text), null, 2) : text;
  return pretty.length > MOST_SHOWN ? `${pretty.slice(0, MOST_SHOWN)}\n…` : pretty;
}

for (const form of document.querySelectorAll("form")) {
  form.addEventListener("input", () => showCurl(form));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send(form);
  });
}

const refresh = () => document.querySelectorAll("form").forEach(showCurl);
$("key").addEventListener("input", () => {
  setKey($("key").value.trim());
  refresh();
});
refresh();
const { needs_key: needed } = await (await fetch("/health/ready")).json();
$("key-field").hidden = !needed || hasKey();
