/** The sampling controls. What they show is what runs. */

/** What the built-in model's README recommends; others get what their publishers run them with, and else the engine's own defaults. */
const defaults = { temperature: 0.7, topK: 40, topP: 0.95, minP: 0, repetitionPenalty: 1, maxTokens: 512, seed: "" };
const forDemo = { repetitionPenalty: 1.1, maxTokens: 400 };

export class Sampling {
  #fields;
  #opens;
  #bos = "";

  constructor(form) {
    this.#fields = form.elements;
    this.#opens = form.querySelector("#opens");
    // A field that is folded away cannot say what is wrong with it.
    form.addEventListener("invalid", ({ target }) => target.closest("details")?.setAttribute("open", ""), true);
    // Any number may be written; keys and buttons still go in steps that suit it.
    for (const type of ["keydown", "pointerdown", "keyup", "pointerup", "focusout"]) {
      form.addEventListener(type, ({ target, key = "Arrow" }) => {
        const { step } = target.dataset;
        if (step) target.step = type.endsWith("down") && key.startsWith("Arrow") ? step : "any";
      });
    }
  }

  /** The values that suit a model. */
  reset(info, isDemo, settings) {
    const values = { ...defaults, ...(isDemo ? forDemo : settings) };
    values.maxTokens = Math.min(values.maxTokens, info.contextLength);
    for (const [name, value] of Object.entries(values)) this.#fields[name].value = value;
    this.#fields.maxTokens.max = info.contextLength;
    const { bos = null, addBos = true } = info.tokenizer ?? {};
    this.#bos = bos === null || addBos ? "" : bos;
    this.#opens.hidden = this.#bos === "";
    this.#opens.querySelector("code").textContent = this.#bos;
    this.#fields.opens.checked = isDemo;
  }

  /** What goes before a prompt that opens a text, where the tokenizer does not add it. */
  get opening() {
    return this.#fields.opens.checked ? this.#bos : "";
  }

  /** Options of `generate`. A seed is always among them, so that a run can be repeated. */
  read() {
    const { seed, ...numbers } = Object.fromEntries(
      Object.keys(defaults).map((name) => [name, this.#fields[name].valueAsNumber]),
    );
    return { ...numbers, seed: Number.isNaN(seed) ? crypto.getRandomValues(new Uint32Array(1))[0] : seed };
  }
}
