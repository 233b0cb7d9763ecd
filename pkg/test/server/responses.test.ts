/** OpenAI's responses without state, and Anthropic's messages: what the completions do not have. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { body, CONTINUATION, error, events, HERMES, served } from "./support/app.ts";

const ask = { model: "demo", input: "Once upon a time", temperature: 0, max_output_tokens: 12 };
const schema = { type: "object", properties: { n: { enum: [1, 2] } }, required: ["n"], additionalProperties: false };

test("a response repeats what it was asked, and keeps nothing", async (context) => {
  const app = await served(context);
  const reply = await body(app.post("/v1/responses", { ...ask, instructions: "", metadata: { a: "b" } }));
  assert.match(reply.id, /^resp_[0-9a-f]{24}$/);
  assert.deepEqual([reply.object, reply.status, reply.store], ["response", "incomplete", false]);
  assert.deepEqual([reply.metadata, reply.temperature, reply.max_output_tokens], [{ a: "b" }, 0, 12]);
  const [item] = reply.output;
  assert.deepEqual([item.type, item.role, item.content[0].text], ["message", "assistant", CONTINUATION]);
  const { input_tokens, output_tokens, total_tokens } = reply.usage;
  assert.deepEqual([input_tokens, output_tokens, total_tokens], [4, 12, 16]);
  for (const field of ["previous_response_id", "conversation", "prompt"])
    assert.equal((await error(app.post("/v1/responses", { ...ask, [field]: "x" }), 400)).param, field);
  assert.equal((await error(app.post("/v1/responses", { ...ask, background: true }), 400)).param, "background");
  assert.equal((await app.get(`/v1/responses/${reply.id}`)).status, 404);
});

test("a conversation with calls is given whole", async (context) => {
  const app = await served(context);
  const input = [
    { role: "developer", content: "Once " },
    { role: "user", content: [{ type: "input_text", text: "upon" }] },
    { type: "function_call", call_id: "c", name: "x", arguments: '{"a":1}' },
    { type: "function_call_output", call_id: "c", output: " a time" },
    { type: "reasoning", summary: [] },
  ];
  // The template writes an assistant's text, which is none here.
  const chatTemplate = "{% for message in messages %}{{ message.content or '' }}{% endfor %}";
  const lenient = await served(context, { chatTemplate });
  assert.equal((await body(lenient.post("/v1/responses", { ...ask, input }))).output[0].content[0].text, CONTINUATION);
  const picture = [{ role: "user", content: [{ type: "input_image", image_url: "x" }] }];
  assert.equal(
    (await error(app.post("/v1/responses", { ...ask, input: picture }), 400)).param,
    "input[0].content[0].type",
  );
});

test("a response keeps to its format", async (context) => {
  const app = await served(context);
  const text = { format: { type: "json_schema", name: "n", schema, strict: true } };
  const reply = await body(app.post("/v1/responses", { ...ask, max_output_tokens: 100, text }));
  assert.equal(reply.status, "completed");
  assert.ok([1, 2].includes(JSON.parse(reply.output[0].content[0].text).n));
});

test("the events of a response are numbered, and build what the response is", async (context) => {
  const app = await served(context, { chatTemplate: HERMES });
  const parameters = { type: "object", properties: { city: { type: "string", maxLength: 8 } }, required: ["city"] };
  const tools = [{ type: "function", name: "weather", parameters: { ...parameters, additionalProperties: false } }];
  const calling = { tools, tool_choice: "required", parallel_tool_calls: false, max_output_tokens: 200 };
  for (const more of [{}, calling]) {
    const all = await events(app.post("/v1/responses", { ...ask, ...more, stream: true }));
    const data = all.map(({ data }) => JSON.parse(data));
    assert.deepEqual(
      data.map(({ sequence_number: number }) => number),
      data.map((_, i) => i),
    );
    assert.deepEqual(
      all.map(({ event }) => event),
      data.map(({ type }) => type),
    );
    const types = data.map(({ type }) => type);
    assert.deepEqual(types.slice(0, 3), ["response.created", "response.in_progress", "response.output_item.added"]);
    const { response } = data.at(-1);
    const whole = await body(app.post("/v1/responses", { ...ask, ...more }));
    const bare = (items: object[]) => items.map((item) => ({ ...item, id: "", call_id: "" }));
    assert.deepEqual(bare(response.output), bare(whole.output));
    const deltas = data.filter(({ type }) => type.endsWith(".delta")).map(({ delta }) => delta);
    const [item] = response.output;
    assert.equal(deltas.join(""), item.type === "message" ? item.content[0].text : item.arguments);
    const done = data.find(({ type }) => type === "response.output_item.done");
    assert.deepEqual(done.item, item);
  }
});

test("a message's errors are Anthropic's, and its limit must be given", async (context) => {
  const app = await served(context);
  const messages = [{ role: "user", content: "Once upon a time" }];
  const failed = async (given: object, status: number) => {
    const found = await body(app.post("/v1/messages", given), status);
    assert.equal(found.type, "error");
    return found.error.type;
  };
  assert.equal(await failed({ model: "demo", messages }, 400), "invalid_request_error");
  assert.equal(await failed({ model: "none", messages, max_tokens: 4 }, 404), "not_found_error");
  assert.equal(
    await failed({ model: "demo", messages: [{ role: "system", content: "" }], max_tokens: 4 }, 400),
    "invalid_request_error",
  );
  const counted = await body(app.post("/v1/messages/count_tokens", { model: "demo", messages }));
  assert.deepEqual(counted, { input_tokens: 4 });
  const all = await events(
    app.post("/v1/messages", { model: "demo", messages, max_tokens: 12, temperature: 0, stream: true }),
  );
  assert.deepEqual(
    [...new Set(all.map(({ event }) => event))],
    [
      "message_start",
      "content_block_start",
      "content_block_delta",
      "content_block_stop",
      "message_delta",
      "message_stop",
    ],
  );
});
