// Requests to the server that this page came from, and elements of the page.

const KEY = "labelry-key";

export const $ = (id) => document.getElementById(id);

export class Problem extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export function setKey(key) {
  if (key) sessionStorage.setItem(KEY, key);
  else sessionStorage.removeItem(KEY);
}

export const hasKey = () => sessionStorage.getItem(KEY) !== null;

export const keyHeaders = () => (hasKey() ? { "X-API-Key": sessionStorage.getItem(KEY) } : {});

/** The answer to a request; a Problem if the server refuses or cannot be reached. */
export async function ask(path, { body, signal, binary } = {}) {
  const headers = keyHeaders();
  if (body) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, {
      method: body ? "POST" : "GET",
      body: body && JSON.stringify(body),
      headers,
      signal,
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, "unreachable", "The server does not answer.");
  }
  if (answer.status === 202) throw new Problem(202, "waiting", (await answer.json()).message);
  if (answer.ok) return binary ? answer.arrayBuffer() : answer.json();
  const said = await answer.json().catch(() => ({}));
  const message = said.error?.message ?? `The server answered ${answer.status}.`;
  throw new Problem(answer.status, said.error?.code ?? "http", sentence(message));
}

export const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

const sentence = (text) => text[0].toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");

// Names of labels are data: they go into the page as text, in a direction of their own.

/** An element with a class and children; strings become text. */
export function element(name, className, ...children) {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.append(...children);
  return made;
}

/** A button that acts when it is pressed. */
export function button(className, act, ...children) {
  const made = element("button", className, ...children);
  made.type = "button";
  made.addEventListener("click", act);
  return made;
}

/** Copy a text, and say so on a button for a moment. */
export async function copy(pressed, text) {
  const before = pressed.textContent;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Browsers have a clipboard for pages of https and of this machine only.
    const field = element("textarea", "hidden", text);
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
    pressed.focus();
  }
  pressed.textContent = "Copied";
  await pause(1500);
  if (pressed.textContent === "Copied") pressed.textContent = before;
}

export const nameOf = (label) => label.description || String(label.label);

/** Label and description, as page elements. */
export function shown(label) {
  const parts = [element("b", "", element("bdi", "", String(label.label)))];
  if (label.description) parts.push(element("span", "description", element("bdi", "", label.description)));
  return parts;
}
