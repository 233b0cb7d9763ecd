/** The catalogue of public models: what each takes, whether it fits here, and how fast it is expected to be. Nothing is fetched to tell this. */

import { button, make } from "../dom.js";
import { count, rate, size } from "../format.js";

/** WebAssembly's, where the browser does not say how much memory there is. */
const MAX_MEMORY = 4 * 2 ** 30;

export class Picker {
  #details;
  #load;
  #fail;
  /** { model, plan, planned, speed, words } each. */
  #rows = [];
  #abort = null;

  /** @param load is called with a name that `load` takes, `fail` with what goes wrong */
  constructor(details, load, fail) {
    [this.#details, this.#load, this.#fail] = [details, load, fail];
    details.ontoggle = () => (details.open ? this.open() : this.close());
  }

  /** Shows the list at once, where it is unfolded, and plans one model after another. */
  async open() {
    if (this.#abort || !this.#details.open) return;
    this.#abort = new AbortController();
    const { signal } = this.#abort;
    try {
      const { models, plan } = await import("../ternlight/dist/catalogue.js");
      const { canRun } = await import("../ternlight/dist/index.js");
      if (this.#rows.length === 0) this.#build(models);
      for (const row of this.#rows) {
        if (!row.planned) row.plan = await plan(row.model, canRun, { signal });
        row.planned = true;
        await this.#show(row);
      }
    } catch (error) {
      if (!signal.aborted) this.#fail(error);
    }
  }

  close() {
    this.#abort?.abort();
    this.#abort = null;
  }

  #build(models) {
    this.#rows = models.map((model) => ({
      model,
      plan: null,
      planned: false,
      speed: null,
      words: make("span", "quiet", "Planning"),
    }));
    const rows = this.#rows.map(({ model, words }) =>
      make(
        "li",
        {},
        make("div", {}, make("b", {}, model.name), words),
        button("Load", () => this.#load(model.file), `Load ${model.name}`),
      ),
    );
    const measure = button("How fast would they be here?", () => this.#measure(measure), null, "plain");
    this.#details.append(
      make(
        "p",
        "quiet",
        "Load downloads the file from huggingface.co, once. “Takes” is memory, with a context of 4,096 tokens.",
      ),
      make("ul", "rows", rows),
      measure,
      make("p", { className: "quiet", role: "status" }),
    );
  }

  async #measure(measure) {
    const told = this.#details.querySelector("[role=status]");
    measure.disabled = true;
    told.textContent = "Running small models of the same kinds of weights, for some seconds";
    const { signal } = this.#abort;
    try {
      const { expectedSpeeds } = await import("../ternlight/dist/catalogue.js");
      const { load } = await import("../ternlight/dist/index.js");
      const fitting = this.#rows.filter(({ plan }) => plan?.ok);
      const onSpeed = (model, speed) => {
        const row = fitting.find((one) => one.model === model);
        row.speed = speed;
        this.#show(row);
      };
      await expectedSpeeds(
        fitting.map(({ model }) => model),
        load,
        { signal, onSpeed },
      );
      told.textContent =
        "Estimated for short texts: a small model of each kind has run here, and its times are scaled by the weights. bench.html measures more.";
    } catch (error) {
      told.textContent = "";
      if (!signal.aborted) this.#fail(error);
    }
    measure.disabled = false;
  }

  async #show({ model, plan, speed, words }) {
    const { fitOf, settingsText } = await import("../ternlight/dist/catalogue.js");
    const fit = fitOf(model, plan, MAX_MEMORY);
    words.textContent = [
      model.parameters === null ? null : `${count(model.parameters)} parameters`,
      model.bytes === null ? null : `${model.rounded ? "about " : ""}${size(model.bytes)} to download`,
      fit.needed && `takes ${size(fit.needed.total)}`,
      verdict(fit),
      speed && `about ${rate(speed)} tokens/s expected`,
      model.license,
      model.context && `context ${model.context.toLocaleString("en")}`,
      model.template && `chat as ${model.template}`,
      settingsText(model),
    ]
      .filter(Boolean)
      .join(" · ");
    words.classList.toggle("unfit", fit.ok === false);
  }
}

function verdict({ ok, by }) {
  if (ok === null) return "whether it fits is not known";
  if (by === "size") return ok ? "may fit: its file does" : "does not fit";
  return ok ? "fits" : "does not fit here";
}
