/** What this page keeps in the browser, and how to be rid of it: models, conversations, saved sessions, and the page itself for offline use. */

import { conversations, forgetAll, forgetSessions, MAX_SAVED, savedSizes } from "../chat/store.js";
import { button, confirming, make, refill, style } from "../dom.js";
import { size } from "../format.js";
import { KeptModels } from "../models/kept.js";

/** As sw.js calls the caches of the page's files. */
const OFFLINE = "ternlight-page";

await style(new URL("../rows.css", import.meta.url));

export class StoragePanel {
  #section;
  #fail;
  #changed;
  #models = make("section", "kept", make("h3", {}, "Models · ", make("span", "quiet")), make("ul", "rows"));
  #rows = make("ul", "rows");
  #sum = make("p", "quiet");

  /** @param acts { load(address), fail(error), changed() }: `changed` is called when conversations are gone, and awaited */
  constructor(section, { load, fail, changed }) {
    [this.#section, this.#fail, this.#changed] = [section, fail, changed];
    this.models = new KeptModels(this.#models, load);
    section.replaceChildren(make("h3", {}, "Storage of this page"), this.#sum, this.#rows, this.#models);
  }

  async refresh() {
    const [estimate, persisted, chats, sizes, files] = await Promise.all([
      navigator.storage?.estimate?.().catch(() => ({})) ?? {},
      navigator.storage?.persisted?.().catch(() => false) ?? false,
      conversations().catch(() => []),
      savedSizes().catch(() => []),
      offlineFiles(),
    ]);
    this.#sum.textContent = sumOf(estimate, persisted);
    const saved = sizes.reduce((sum, { bytes }) => sum + bytes, 0);
    const rows = [
      this.#row("Conversations", `${chats.length} in this browser`, chats.length > 0, async () => {
        await forgetAll();
        await this.#changed();
      }),
      this.#row("Saved sessions", sessionWords(sizes.length, saved), sizes.length > 0, forgetSessions),
      this.#row("The page itself", offlineWords(files), files > 0, forgetOffline),
    ];
    refill(this.#rows, rows, this.#section);
    await this.models.refresh();
  }

  #row(name, words, some, remove) {
    const row = make("li", {}, make("div", {}, make("b", {}, name), make("span", "quiet", words)));
    if (!some) return row;
    const made = button("Delete", () => {}, `Delete: ${name}`);
    confirming(made, () =>
      remove()
        .then(() => this.refresh())
        .catch(this.#fail),
    );
    row.append(made);
    return row;
  }
}

function sumOf({ usage, quota }, persisted) {
  if (usage === undefined) return "This browser does not say how much it keeps.";
  const rest = persisted
    ? "The browser keeps it until you delete it."
    : "The browser may delete it when the disk is nearly full.";
  return `${size(usage)} of the ${size(quota)} that the browser allows. ${rest}`;
}

const sessionWords = (number, bytes) =>
  number === 0
    ? "none: what the model has read of a conversation is kept here, so that going on is immediate"
    : `${number}, ${size(bytes)} of at most ${size(MAX_SAVED)}; without them a conversation is read again`;

const offlineWords = (files) =>
  files > 0 ? `${files} files, so that it opens without a network` : "not kept: without a network it does not open";

async function offlineFiles() {
  if (!globalThis.caches || !(await caches.has(OFFLINE).catch(() => false))) return 0;
  return (await (await caches.open(OFFLINE)).keys()).length;
}

async function forgetOffline() {
  const registration = await navigator.serviceWorker?.getRegistration();
  await registration?.unregister();
  await caches.delete(OFFLINE);
}
