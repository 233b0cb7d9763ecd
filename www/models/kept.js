/** The list of models that this browser keeps: what of each is here, with buttons that load and delete it. */

import { button, make, refill } from "../dom.js";
import { megabytes, size } from "../format.js";

/** Files of one model: parts of a split one, or all of a folder's. Those that nobody can read have no address. */
function group(files) {
  const models = new Map();
  for (const file of files) {
    const single = /\.gguf$/i.test(file.url);
    const address = single
      ? file.url.replace(/-\d{5}-of-(\d{5}\.gguf)$/i, "-00001-of-$1")
      : file.url.replace(/[^/]*$/, "");
    const model = models.get(address) ?? { address, size: 0, kept: 0, complete: true, files: [] };
    model.size += file.size;
    model.kept += file.kept;
    model.complete &&= file.complete;
    model.files.push(file);
    models.set(address, model);
  }
  return [...models.values()];
}

const amount = ({ kept, size: all, complete }) =>
  complete ? size(all) : `${megabytes(kept)} of ${megabytes(all)} MB are here`;

export class KeptModels {
  #section;
  #load;
  #models = [];

  /** @param load called with a model's address */
  constructor(section, load) {
    this.#section = section;
    this.#load = load;
  }

  /** What has arrived of a model whose load has ended early, in words; null where nothing has, or all. */
  async restOf(address) {
    await this.refresh();
    const model = this.#models.find((one) => one.address === address);
    return model && !model.complete ? `${amount(model)}, and Continue goes on from there` : null;
  }

  async refresh() {
    const { cache } = await import("../ternlight/dist/index.js");
    this.#models = group(await cache.list());
    const all = this.#models.reduce((sum, { address, kept, size }) => sum + (address ? kept : size), 0);
    this.#section.querySelector("h3 span").textContent = size(all);
    const rows = this.#models.map((model) => this.#row(model));
    refill(this.#section.querySelector("ul"), rows, this.#section.parentElement);
    this.#section.hidden = rows.length === 0;
  }

  #row(model) {
    const name = model.address
      ? nameOf(model.address)
      : { model: "Unreadable", host: "damaged, or of another version" };
    const taken = model.address ? amount(model) : size(model.size);
    const host = name.host !== name.model && name.host;
    const words = make(
      "div",
      {},
      make("b", {}, name.model),
      make("span", "quiet", [taken, host].filter(Boolean).join(" · ")),
    );
    const row = make("li", {}, words);
    const act = (text, work) => row.append(button(text, work, `${text} ${name.model}`));
    if (model.address) act(model.complete ? "Load" : "Continue", () => this.#load(model.address));
    act("Delete", () => this.#delete(model, row));
    if (model.address && !model.complete) {
      const label = `${name.model}: what is here`;
      row.append(make("progress", { value: model.kept / model.size, "aria-label": label }));
    }
    return row;
  }

  async #delete(model, row) {
    const { cache } = await import("../ternlight/dist/index.js");
    try {
      for (const file of model.files) await cache.delete(file);
      await this.refresh();
    } catch {
      row.querySelector(".quiet").textContent = "It is in use, in another tab perhaps, and cannot be deleted now.";
    }
  }
}

function nameOf(address) {
  const { pathname, host } = new URL(address);
  return { model: decoded(pathname.split("/").filter(Boolean).at(-1) ?? host), host };
}

/** A % may be a % too. */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
