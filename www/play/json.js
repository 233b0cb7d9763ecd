/** The playground for structured output: a JSON schema, and an answer that cannot but follow it. */

import { make, problem, style } from "../dom.js";
import { writerTo } from "../views.js";

const EXAMPLE = {
  type: "object",
  properties: {
    name: { type: "string", maxLength: 40 },
    kind: { enum: ["person", "animal", "place"] },
    age: { type: "integer", minimum: 0, maximum: 120 },
  },
  required: ["name", "kind", "age"],
  additionalProperties: false,
};

await style(new URL("./play.css", import.meta.url));

export class JsonView {
  panel;
  #log;
  #element;
  #schema = make("textarea", { id: "schema", rows: 7, spellcheck: false, value: JSON.stringify(EXAMPLE, null, 2) });

  constructor(log, element) {
    [this.#log, this.#element] = [log, element];
    const label = make("label", { htmlFor: "schema" }, "JSON schema");
    const hint = make(
      "p",
      "quiet",
      "Only tokens that keep to the schema can come, whatever the model would have liked to write.",
    );
    this.panel = make("div", "play", label, hint, this.#schema);
  }

  clear() {
    this.#element.replaceChildren();
  }

  async begin(model, { text }, { options }) {
    const schema = parsed(this.#schema.value);
    const given = { ...options, responseFormat: { type: "json_schema", schema } };
    const written = make("pre", "result");
    written.tabIndex = 0;
    const verdict = make("p", "quiet");
    this.#element.replaceChildren(make("p", { className: "given", dir: "auto" }, text), written, verdict);
    const writer = writerTo(this.#log, written);
    const settle = (answer) => {
      verdict.textContent = verdictOf(answer);
      const value = valueIn(answer);
      if (value !== undefined) written.textContent = JSON.stringify(value, null, 2);
    };
    const generation = model.info.template
      ? model.chat([{ role: "user", content: text }], given)
      : model.generate(text, given);
    return { generation, writer, promptTokens: null, settle };
  }
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw problem("BadSchema", `the schema is no JSON: ${error.message}`);
  }
}

function valueIn(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function verdictOf(answer) {
  if (!answer) return "Nothing was written.";
  if (valueIn(answer) === undefined)
    return "It was cut off before its end, so it is no whole JSON. More tokens may finish it.";
  return "This is JSON that follows the schema.";
}
