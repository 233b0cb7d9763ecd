/** Tools in a chat: rendered, called, and parsed. */

import assert from "node:assert/strict";
import { test } from "node:test";
import Ajv2020 from "ajv/dist/2020.js";
import type { ChatOptions, ToolChoice } from "ternlight";
import { demo, failure } from "./support/model.ts";

const parameters = {
  type: "object",
  properties: {
    animal: { enum: ["fox", "bear"] },
    names: { type: "array", items: { $ref: "#/$defs/name" }, minItems: 1, maxItems: 2 },
  },
  required: ["animal", "names"],
  additionalProperties: false,
  $defs: { name: { type: "string", maxLength: 8 } },
};
const tools = [
  { type: "function", function: { name: "tell", parameters } },
  { type: "function", function: { name: "end", parameters: { type: "object", additionalProperties: false } } },
];
const MESSAGES = [{ role: "user", content: "Once upon a time" }];

/** The demo has no template of its own; each of these spells calls in another way. */
const TEMPLATES = {
  hermes: "{{ messages[0].content }}{% if tools %} <tool_call>{% endif %}",
  mistral: "{{ messages[0].content }} [TOOL_CALLS]",
  "mistral since 2025": "{{ messages[0].content }} [TOOL_CALLS] [ARGS]",
  "llama 3": '{{ messages[0].content }} Respond with {"name": function name, "parameters": dictionary}.',
};

test("a chat that must call does, and its arguments keep to the parameters", async (context) => {
  const validate = new Ajv2020().compile(parameters);
  for (const [name, chatTemplate] of Object.entries(TEMPLATES)) {
    const model = await demo(context, { chatTemplate });
    const ask = (toolChoice: ToolChoice, options: ChatOptions = {}) =>
      model.chat(MESSAGES, { tools, toolChoice, seed: 1, temperature: 1.3, maxTokens: 300, ...options }).finished;
    const told = await ask({ name: "tell" });
    assert.equal(told.finishReason, "stop", `${name}: ${told.text}`);
    assert.deepEqual(told.toolErrors, []);
    assert.ok(told.toolCalls!.length >= 1, `${name}: ${told.text}`);
    for (const call of told.toolCalls!) {
      assert.equal(call.name, "tell");
      assert.ok(validate(call.arguments), `${name}: ${JSON.stringify(call)}`);
    }
    const any = await ask("required");
    assert.ok(any.toolCalls!.every((call) => ["tell", "end"].includes(call.name)));
    // One that `maxTokens` cuts is no call.
    assert.equal(any.toolErrors!.length, any.finishReason === "stop" ? 0 : 1, `${name}: ${any.text}`);
    assert.ok(any.toolCalls!.length + any.toolErrors!.length > 0, name);
    // The text that streams is the text as it is.
    assert.ok(told.text.includes('"animal"'));
    await model.close();
  }
});

test("an answer without calls has none; without tools nobody looks", async (context) => {
  const model = await demo(context, { chatTemplate: TEMPLATES.hermes });
  const short = { temperature: 0, maxTokens: 8 };
  const free = await model.chat(MESSAGES, { tools, ...short }).finished;
  assert.deepEqual([free.toolCalls, free.toolErrors], [[], []]);
  const none = await model.chat(MESSAGES, { tools, toolChoice: "none", ...short }).finished;
  const without = await model.chat(MESSAGES, short).finished;
  assert.deepEqual(none.promptTokens, without.promptTokens);
  assert.notDeepEqual(free.promptTokens, without.promptTokens);
  assert.deepEqual([none.toolCalls, without.toolCalls], [undefined, undefined]);
});

test("what cannot be asked for is a typed error", async (context) => {
  const model = await demo(context, { chatTemplate: TEMPLATES.hermes });
  const refused = async (options: object) => {
    const { code, detail } = await failure(() => model.chat(MESSAGES, options as ChatOptions).finished);
    return [code, detail.option, detail.place];
  };
  const choice = ["InvalidArgument", "toolChoice", undefined];
  assert.deepEqual(await refused({ toolChoice: "required" }), choice);
  assert.deepEqual(await refused({ tools, toolChoice: "always" }), choice);
  assert.deepEqual(await refused({ tools, toolChoice: { name: "fly" } }), choice);
  assert.deepEqual(await refused({ tools, toolChoice: "required", responseFormat: "json" }), choice);
  const not = [tools[0], { name: "odd", parameters: { properties: { a: { not: {} } } } }];
  const place = "schema 1, #/properties/a";
  assert.deepEqual(await refused({ tools: not, toolChoice: "required" }), ["BadConstraint", "tools", place]);
  const plain = await demo(context, { chatTemplate: "{{ messages[0].content }}" });
  const unknown = await failure(() => plain.chat(MESSAGES, { tools, toolChoice: "required" }).finished);
  assert.deepEqual([unknown.code, unknown.detail.option], ["UnsupportedOption", "toolChoice"]);
});
