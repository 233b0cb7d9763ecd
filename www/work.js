/** Gives a model in this tab something to do: answers without end, a look at all weights, and damage that the alarm is to find. */

const MAX_TOKENS = 200;
const CODES = 5;

export class Work {
  #model = null;
  #section;
  #fail;
  #abort = null;

  /** @param fail hears of what goes wrong */
  constructor(section, fail) {
    this.#section = section;
    this.#fail = fail;
    const form = section.querySelector("form");
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#write(form.elements.prompt.value, form.elements.count.valueAsNumber);
    });
    this.#button("rest").addEventListener("click", () => this.#rest());
    this.#button("compare").addEventListener("click", () => this.#health({ full: true }));
    this.#button("damage").addEventListener("click", () => this.#health({ full: true, damage: { codes: CODES } }));
  }

  begin(model) {
    this.#model = model;
  }

  end() {
    this.#rest();
    this.#model = null;
  }

  #button(id) {
    return this.#section.querySelector(`#${id}`);
  }

  #rest() {
    this.#abort?.abort();
    this.#abort = null;
    this.#button("rest").disabled = true;
  }

  #write(prompt, count) {
    this.#rest();
    this.#abort = new AbortController();
    this.#button("rest").disabled = false;
    for (let i = 0; i < count; i++) this.#answers(prompt, this.#abort.signal);
  }

  /** One answer after the other. */
  async #answers(prompt, signal) {
    try {
      while (!signal.aborted) await this.#model.generate(prompt, { maxTokens: MAX_TOKENS, signal }).finished;
    } catch (error) {
      if (signal.aborted) return;
      this.#rest();
      this.#fail(error);
    }
  }

  async #health(options) {
    try {
      await this.#model.health(options);
    } catch (error) {
      this.#fail(error);
    }
  }
}
