/** What the element shows, built without a line of HTML as text. */

import type { ChatStrings } from "./strings.ts";
import { CSS } from "./style.ts";

type Attributes = Readonly<Record<string, string>>;

export function tag<K extends keyof HTMLElementTagNameMap>(
  name: K,
  attributes: Attributes = {},
  ...children: (Node | string)[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

/** What stands between the conversation and the input: a question, a load, an error. */
export interface Notice {
  part: "confirm" | "loading" | "error";
  text: string;
  /** Between 0 and 1; null where it is not known. Only a load has one. */
  progress?: number | null;
  detail?: { heading: string; text: string } | undefined;
  action: { part: "load" | "cancel" | "retry"; text: string; run(): void };
}

export class View {
  readonly root: ShadowRoot;
  readonly log = tag("div", { part: "log", role: "log", tabindex: "0", "aria-live": "off" });
  readonly input = tag("textarea", { part: "input", rows: "1", dir: "auto", enterkeyhint: "send", id: "input" });
  readonly form = tag("form", { part: "form" });
  readonly #label = tag("label", { class: "spoken", for: "input" });
  readonly #send = tag("button", { part: "send", type: "submit" });
  readonly stop = tag("button", { part: "stop", type: "button" });
  readonly #notice = tag("div", { part: "notice" });
  /** What happens, in a word or two. */
  readonly #status = tag("div", { class: "spoken", role: "status" });
  /** The answer, sentence by sentence, for screen readers: the text itself changes with every token. */
  readonly #speech = tag("div", { class: "spoken", "aria-live": "polite", "aria-relevant": "additions" });

  constructor(root: ShadowRoot) {
    this.root = root;
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(CSS);
    root.adoptedStyleSheets = [sheet];
    this.stop.hidden = this.#notice.hidden = true;
    this.form.append(this.#label, this.input, this.stop, this.#send);
    root.append(this.log, this.#notice, this.form, this.#status, this.#speech);
  }

  /** The words of the page's language. */
  name(strings: ChatStrings, label: string, placeholder: string): void {
    this.log.setAttribute("aria-label", label);
    this.#label.textContent = this.input.placeholder = placeholder;
    this.#send.textContent = strings.send;
    this.stop.textContent = strings.stop;
  }

  /** @param ready whether a message can be sent now; not `disabled`, which would take the focus away */
  set(ready: boolean, answering: boolean): void {
    this.#send.setAttribute("aria-disabled", String(!ready));
    this.log.setAttribute("aria-busy", String(answering));
    if (!answering && this.#focused(this.stop)) this.input.focus();
    this.stop.hidden = !answering;
  }

  notice(notice: Notice | null): void {
    const before = this.#notice.querySelector("button");
    const focused = before && this.#focused(before);
    this.#notice.hidden = !notice;
    if (!notice) {
      this.#notice.replaceChildren();
      if (focused) this.input.focus();
      return;
    }
    const { part, text, progress, detail, action } = notice;
    const [words, bar] = this.#notice.children;
    // While it loads, the bar and the button stay as they are: whoever is about to press it finds it.
    if (part === "loading" && bar instanceof HTMLProgressElement) {
      words!.textContent = text;
      setProgress(bar, progress ?? null, text);
      return;
    }
    const button = tag("button", { part: action.part, type: "button" }, action.text);
    button.addEventListener("click", action.run);
    const children: HTMLElement[] = [tag("p", part === "error" ? { role: "alert" } : {}, text)];
    if (progress !== undefined) children.push(setProgress(tag("progress", { part: "progress" }), progress, text));
    if (detail) children.push(tag("details", {}, tag("summary", {}, detail.heading), detail.text));
    this.#notice.setAttribute("part", `notice ${part}`);
    this.#notice.replaceChildren(...children, button);
    if (focused) button.focus();
  }

  /** A turn of the conversation. @returns where its text belongs */
  turn(role: "user" | "assistant", who: string): HTMLElement {
    const text = tag("div", { part: "text", dir: "auto" });
    this.log.append(tag("div", { part: `message ${role}` }, tag("span", { class: "spoken" }, `${who}: `), text));
    this.log.scrollTop = this.log.scrollHeight;
    return text;
  }

  /** Changes the log. Who reads further up is left there. */
  write(change: () => void): void {
    const { scrollTop, clientHeight, scrollHeight } = this.log;
    const atEnd = scrollTop + clientHeight >= scrollHeight - 24;
    change();
    if (atEnd) this.log.scrollTop = this.log.scrollHeight;
  }

  say(words: string): void {
    this.#status.textContent = words;
  }

  speak(sentence: string): void {
    this.#speech.append(tag("p", {}, sentence));
  }

  hush(): void {
    this.#speech.replaceChildren();
  }

  #focused(element: Element): boolean {
    return this.root.activeElement === element;
  }
}

function setProgress(bar: HTMLProgressElement, progress: number | null, text: string): HTMLProgressElement {
  bar.setAttribute("aria-label", text);
  if (progress === null) bar.removeAttribute("value");
  else bar.value = progress;
  return bar;
}
