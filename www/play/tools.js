/** The playground for tools: definitions, the calls that a model makes of them, and results that the reader writes. */

import { make, problem, style } from "../dom.js";
import { scrolled, writerTo } from "../views.js";

const EXAMPLE = [
  {
    type: "function",
    function: {
      name: "weather",
      description: "The weather of a city now",
      parameters: {
        type: "object",
        properties: { city: { type: "string" }, unit: { enum: ["celsius", "fahrenheit"] } },
        required: ["city"],
      },
    },
  },
];
const CHOICES = { auto: "The model decides", required: "It must call one", none: "It may call none" };

await style(new URL("./play.css", import.meta.url));

export class ToolsView {
  panel;
  #log;
  #element;
  #host;
  #messages = [];
  #tools = make("textarea", { id: "definitions", rows: 7, spellcheck: false, value: JSON.stringify(EXAMPLE, null, 2) });
  #choice = make(
    "select",
    { id: "tool-choice" },
    Object.entries(CHOICES).map(([value, words]) => new Option(words, value)),
  );

  constructor(log, element, host) {
    [this.#log, this.#element, this.#host] = [log, element, host];
    this.panel = make(
      "div",
      "play",
      make("label", { htmlFor: "definitions" }, "Tool definitions"),
      make("p", "quiet", "Nothing is run: you write what a call gives, and the model goes on from there."),
      this.#tools,
      make("label", { htmlFor: "tool-choice" }, "Calls "),
      this.#choice,
    );
  }

  clear() {
    this.#messages = [];
    this.#element.replaceChildren();
  }

  /** `{ text }` asks, `{ results, given }` goes on with what the calls gave; `given` is the button for that, which is of use once. */
  async begin(model, { text, results, given }, { options }) {
    if (!results && text.trim() === "") throw problem("NoMessage", "the message has no text");
    const asked = results ?? [{ role: "user", content: text }];
    const messages = [...this.#messages, ...asked];
    const tools = parsed(this.#tools.value);
    const generation = model.chat(messages, { ...options, tools, toolChoice: this.#choice.value });
    const shown = asked.map(({ role, name, content }) => turn(role === "user" ? "You" : `Result of ${name}`, content));
    const answer = turn("Model", "");
    this.#element.append(...shown, answer);
    const writer = writerTo(this.#log, answer.lastChild);
    const settle = (written, finished) => {
      if (!written) {
        for (const one of [...shown, answer]) one.remove();
        return;
      }
      if (given?.contains(document.activeElement)) this.#log.focus();
      given?.remove();
      const { toolCalls = [], toolErrors = [] } = finished;
      this.#messages = [...messages, said(written, toolCalls)];
      for (const { text, reason } of toolErrors)
        answer.append(make("p", "quiet", `This is no call: ${reason} (${text})`));
      if (toolCalls.length > 0) scrolled(this.#log, () => answer.append(this.#calls(toolCalls)));
    };
    return { generation, writer, promptTokens: null, settle };
  }

  #calls(calls) {
    const fields = calls.map((call, at) => {
      const id = `result-${this.#messages.length}-${at}`;
      const field = make("textarea", { id, rows: 2, dir: "auto" });
      const words = `${call.name}(${JSON.stringify(call.arguments)})`;
      return [make("p", {}, make("code", {}, words)), make("label", { htmlFor: id }, `What ${call.name} gives`), field];
    });
    const send = make("button", {}, "Go on with these results");
    const form = make("form", "calls", fields.flat(), send);
    form.onsubmit = (event) => {
      event.preventDefault();
      const results = calls.map((call, at) => ({
        role: "tool",
        name: call.name,
        content: fields[at][2].value,
        ...(call.id ? { tool_call_id: call.id } : {}),
      }));
      if (send.isConnected) this.#host.start({ results, given: send });
    };
    return form;
  }
}

/** The answer as templates want it back: calls apart from the text. */
const said = (content, calls) =>
  calls.length === 0
    ? { role: "assistant", content }
    : {
        role: "assistant",
        content: "",
        tool_calls: calls.map(({ id, name, arguments: given }) => ({
          type: "function",
          ...(id ? { id } : {}),
          function: { name, arguments: given },
        })),
      };

const turn = (who, text) =>
  make("article", "turn", make("h3", {}, who), make("p", { className: "plain-text", dir: "auto" }, text));

function parsed(text) {
  let value;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw problem("BadTools", `the tools are no JSON: ${error.message}`);
  }
  if (!Array.isArray(value)) throw problem("BadTools", "the tools are no list");
  return value;
}
