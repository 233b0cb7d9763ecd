/** What stands below a chat: the conversations that are kept, the system prompt, files to send, and how full the context is. */

import { button, confirming, make, refill } from "../dom.js";
import { integer, size } from "../format.js";

/** @param acts { open, remove, exportAll, importFile, attach, detach, system }: what the reader asks for */
export class ChatPanel {
  element;
  #acts;
  #list = make("ul", "rows");
  #count = make("span", {}, "Conversations");
  #system = make("textarea", { id: "system", rows: 2, dir: "auto", placeholder: "How the model should answer" });
  #files = make("p", "chips");
  #note = make("p", { className: "quiet", "aria-live": "polite" });
  #meter = make("meter", { min: 0, max: 1, high: 0.9, "aria-label": "Context in use" });
  #context = make("span", "quiet");

  constructor(acts) {
    this.#acts = acts;
    this.#system.oninput = () => acts.system(this.#system.value);
    const history = make(
      "details",
      "history",
      make("summary", {}, this.#count),
      this.#list,
      make("p", "choices", button("Export all", acts.exportAll), button("Import…", acts.importFile)),
    );
    const system = make(
      "details",
      {},
      make("summary", {}, "System prompt"),
      make("label", { className: "unseen", htmlFor: "system" }, "System prompt"),
      this.#system,
    );
    const attach = button("Attach a text file…", acts.attach, null, "plain");
    const context = make("p", "context", this.#meter, this.#context);
    this.element = make(
      "div",
      "chat-panel",
      this.#note,
      history,
      system,
      make("div", "attach", attach, this.#files),
      context,
    );
  }

  showList(conversations, current) {
    this.#count.textContent = conversations.length > 0 ? `Conversations (${conversations.length})` : "Conversations";
    const none = make("li", "quiet", "None yet. They stay in this browser.");
    const rows = conversations.map((one) => this.#row(one, one.id === current));
    refill(this.#list, rows.length > 0 ? rows : [none], this.#count.parentElement);
  }

  #row({ id, title, changed, nodes }, isCurrent) {
    const open = button(title, () => this.#acts.open(id), null, "plain title");
    open.dir = "auto";
    if (isCurrent) open.setAttribute("aria-current", "true");
    const when = new Date(changed).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
    const remove = button("Delete", () => {}, `Delete ${title}`);
    confirming(remove, () => this.#acts.remove(id));
    return make("li", {}, open, make("span", "quiet", `${nodes.length} messages · ${when}`), remove);
  }

  note(words) {
    this.#note.textContent = words;
  }

  showSystem(text) {
    this.#system.value = text;
  }

  showFiles(files) {
    const chip = (file) =>
      make(
        "span",
        "chip",
        `${file.name} · ${size(file.text.length)} `,
        button("Remove", () => this.#acts.detach(file), `Remove ${file.name}`),
      );
    this.#files.replaceChildren(...files.map(chip));
  }

  showContext(used, all) {
    this.#meter.value = used / all;
    this.#context.textContent = `${integer(used)} of ${integer(all)} tokens of context`;
  }
}
