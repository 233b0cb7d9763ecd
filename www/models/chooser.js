/** What the chooser shows when it opens: the public models, and those that this browser keeps. */

import { style } from "../dom.js";
import { KeptModels } from "./kept.js";
import { known } from "./known.js";
import { Picker } from "./picker.js";

await style(new URL("../rows.css", import.meta.url));

export class Chooser {
  #picker;

  /** @param acts { load(address), fail(error) } */
  constructor({ picker, kept }, { load, fail }) {
    this.#picker = new Picker(picker, load, fail);
    this.kept = new KeptModels(kept, load);
  }

  /** What the catalogue says that the model of a name or an address is run with. */
  async settingsOf(source) {
    return (await known(source))?.settings ?? null;
  }

  async open() {
    // It may have been unfolded before this part was there, or stayed so while the chooser was closed.
    void this.#picker.open();
    await this.kept.refresh().catch(() => {});
  }

  close() {
    this.#picker.close();
  }
}
