/** Elements, as the parts of the page that come later make them. */

/** An element with a class, or with properties, and what is in it. Texts stay texts. */
export function make(tag, given = {}, ...inside) {
  const element = document.createElement(tag);
  const properties = typeof given === "string" ? { className: given } : given;
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("aria-")) element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...inside.flat().filter((part) => part !== null && part !== ""));
  return element;
}

/** @param label says more than the text to who does not see where the button stands */
export function button(text, act, label = null, className = "small") {
  return make("button", { type: "button", className, onclick: act, ...(label ? { "aria-label": label } : {}) }, text);
}

/** The style sheet of a part, once. What needs it waits, so that nothing jumps. */
export function style(url) {
  const { href } = url;
  const known = [...document.querySelectorAll("link[rel=stylesheet]")].some((link) => link.href === href);
  if (known) return Promise.resolve();
  return new Promise((resolve) => {
    const link = make("link", { rel: "stylesheet", href, onload: resolve, onerror: resolve });
    document.head.append(link);
  });
}

/** Puts other children into an element. Focus that was inside goes to a button in the same place, of the same name if it can, or to `other`. */
export function refill(element, children, other) {
  const { activeElement: held } = document;
  const inside = element.contains(held);
  const at = [...element.children].findIndex((child) => child.contains(held));
  const nameOf = (one) => one.getAttribute("aria-label") ?? one.textContent;
  element.replaceChildren(...children);
  if (!inside) return;
  const buttons = [...(element.children[at]?.querySelectorAll("button:enabled") ?? [])];
  const same = buttons.find((one) => nameOf(one) === nameOf(held));
  (same ?? buttons[0] ?? other).focus({ preventScroll: true });
}

/** Gives the reader a file to keep. */
export function download(name, text, type) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

/** A text file that a reader picks; null where it is none. */
export function pickFile(accept) {
  return new Promise((resolve) => {
    const input = make("input", { type: "file", accept });
    input.onchange = () => resolve(input.files[0] ?? null);
    input.oncancel = () => resolve(null);
    input.click();
  });
}

/** A file's text. Bytes that are no UTF-8 are refused, and more of them than `most`. */
export async function textOf(file, most) {
  if (file.size > most) throw problem("TooLarge", `${file.name} has ${file.size} bytes; at most ${most} can be read`);
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
  } catch {
    throw problem("NotText", `${file.name} is not a text in UTF-8`);
  }
}

/** An error that problems.js has words for. */
export const problem = (code, message) => Object.assign(new Error(message), { code });

/** A button that asks once more before it does what cannot be undone. */
export function confirming(element, act) {
  const { textContent: text } = element;
  const label = element.getAttribute("aria-label");
  let asked = false;
  const ask = (again) => {
    asked = again;
    element.textContent = again ? "Really?" : text;
    if (label) element.setAttribute("aria-label", again ? `Really? ${label}` : label);
  };
  element.onblur = () => ask(false);
  element.onclick = () => {
    if (!asked) return ask(true);
    ask(false);
    act();
  };
}
