/** Checks of requests by their schemas. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { chatRequest } from "../../src/openai/chat.ts";
import { completionRequest } from "../../src/openai/completions.ts";
import { document } from "../../src/openai/document.ts";
import { embeddingRequest } from "../../src/openai/embeddings.ts";
import { check, type Schema } from "../../src/openai/schema.ts";

const messages = [{ role: "user", content: "Hi" }];
const chat = (more: object) => check(chatRequest, { model: "m", messages, ...more });
const completion = (more: object) => check(completionRequest, { model: "m", prompt: "Hi", ...more });

test("a fault names its field as OpenAI's errors do", () => {
  const part = { type: "image_url", image_url: { url: "x" } };
  const wrong: [fault: { param: string; message: string } | null, param: string, message: RegExp][] = [
    [check(chatRequest, {}), "model", /^model is missing$/],
    [check(chatRequest, []), "", /^the body must be an object, not a list$/],
    [chat({ temperature: "hot" }), "temperature", /a number or null from 0 to 2, not "hot"/],
    [chat({ temperature: 2.1 }), "temperature", /not 2.1/],
    [chat({ messages: [] }), "messages", /at least 1/],
    [chat({ messages: [{ content: "x" }] }), "messages[0].role", /missing/],
    [chat({ messages: [{ role: "king", content: "x" }] }), "messages[0].role", /"system" or .* not "king"/],
    [chat({ messages: [{ role: "user" }] }), "messages[0].content", /missing/],
    [chat({ messages: [{ role: "user", content: null }] }), "messages[0].content", /a string, or an array/],
    [
      chat({ messages: [{ role: "user", content: [part] }] }),
      "messages[0].content[0].type",
      /must be "text", not "image_url"/,
    ],
    [chat({ messages: [{ role: "tool", content: "x" }] }), "messages[0].tool_call_id", /missing/],
    [chat({ stop: Array(65).fill("a") }), "stop", /at most 64 items, not 65/],
    [chat({ n: 0 }), "n", /from 1 to 128, not 0/],
    [chat({ logit_bias: { x: 1 } }), "logit_bias", /"x"/],
    [chat({ response_format: { type: "xml" } }), "response_format.type", /"text" or "json_object" or "json_schema"/],
    [chat({ response_format: { type: "json_schema" } }), "response_format.json_schema", /missing/],
    [chat({ tools: [{ type: "function", function: {} }] }), "tools[0].function.name", /missing/],
    [chat({ functions: [] }), "functions", /must be left out: it is not supported/],
    [chat({ grammar: "root ::= x" }), "grammar", /must be left out/],
    [completion({ structured_outputs: { regex: "x" } }), "structured_outputs", /must be left out/],
    [completion({ max_tokens: -2 }), "max_tokens", /of at least -1, not -2/],
    [chat({ max_completion_tokens: -2 }), "max_completion_tokens", /of at least -1, not -2/],
    [chat({ mirostat: 1 }), "mirostat", /0 or 2, not 1/],
    [chat({ service_tier: "gold" }), "service_tier", /"auto"/],
    [completion({ best_of: 2 }), "best_of", /1, not 2/],
    [completion({ suffix: "x" }), "suffix", /must be left out/],
    [completion({ logprobs: 6 }), "logprobs", /from 0 to 5/],
    [completion({ prompt: [[]] }), "prompt[0]", /at least 1/],
    [completion({ prompt: [1, -1] }), "prompt[1]", /-1/],
    [
      check(embeddingRequest, { model: "m", input: "x", encoding_format: "hex" }),
      "encoding_format",
      /"float" or "base64"/,
    ],
  ];
  for (const [fault, param, message] of wrong) {
    assert.ok(fault, `${param} ${message}`);
    assert.equal(fault.param, param, fault.message);
    assert.match(fault.message, message);
  }
});

test("null and unknown fields are taken", () => {
  const taken: Schema[] = [chatRequest, completionRequest];
  for (const schema of taken) {
    const nulls = Object.entries(schema.properties!)
      .filter(([name]) => !schema.required!.includes(name))
      .map(([name]) => [name, null]);
    const body = { model: "m", messages, prompt: "Hi", ...Object.fromEntries(nulls), something: { new: true } };
    assert.equal(check(schema, body), null);
  }
});

/** The optional fields of a schema, at any depth, that may not be null. */
function notNull(schema: Schema, at: string): string[] {
  const { anyOf = [], items, properties = {}, required = [] } = schema;
  const inner = [...anyOf, ...(items ? [items] : [])].flatMap((one) => notNull(one, at));
  const own = Object.entries(properties).flatMap(([name, property]) => {
    const place = `${at}.${name}`;
    const refuses = !required.includes(name) && check(property, null) !== null;
    return [...(refuses ? [place] : []), ...notNull(property, place)];
  });
  return [...inner, ...own];
}

test("every optional field of every request may be null, at any depth", () => {
  const { schemas } = document("1").components;
  assert.ok(Object.keys(schemas).length >= 8);
  for (const [name, schema] of Object.entries(schemas)) assert.deepEqual(notNull(schema, name), []);
  assert.deepEqual(notNull({ items: { properties: { name: { type: "string" } } } }, "x"), ["x.name"]);
});

test("every shape of a prompt is taken", () => {
  for (const prompt of ["Hi", ["Hi", "Ho"], [1, 2], [[1], [2, 3]], null]) assert.equal(completion({ prompt }), null);
});
