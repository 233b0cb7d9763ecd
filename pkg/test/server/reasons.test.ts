/** Why answers end, in the words of each interface. */

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { type TestContext, test } from "node:test";
import { load } from "ternlight";
import { createApp } from "ternlight/server";
import { reasonOf } from "../../src/openai/replies.ts";
import { asked, type Body, body, chunks, DEMO, events, HERMES, PLAIN, type Served, served } from "./support/app.ts";

const input = "Once upon a time";
const messages = [{ role: "user", content: input }];
const common = { model: "demo", temperature: 0, max_tokens: 12 };

/** The reasons of an answer, whole and streamed, by interface. */
async function reasons(app: Served, more: object = {}) {
  const [chat, text, message] = [
    { ...common, ...more, messages },
    { ...common, ...more, prompt: input },
    { ...common, ...more, messages },
  ];
  const { max_tokens, ...rest } = { ...common, ...more };
  const response = { ...rest, input, max_output_tokens: max_tokens };
  const finish = ({ choices }: Body) => choices[0].finish_reason;
  const stopped = ({ stop_reason }: Body) => stop_reason;
  const status = ({ status, incomplete_details: details }: Body) => [status, details?.reason].filter(Boolean).join(" ");
  const whole = {
    chat: finish(await body(app.post("/v1/chat/completions", chat))),
    text: finish(await body(app.post("/v1/completions", text))),
    message: stopped(await body(app.post("/v1/messages", message))),
    response: status(await body(app.post("/v1/responses", response))),
  };
  const streamed = async (path: string, body: object) =>
    (await events(app.post(path, { ...body, stream: true }))).map(({ data }) => JSON.parse(data));
  const ofResponse = await streamed("/v1/responses", response);
  const ofMessage = await streamed("/v1/messages", message);
  const parts = {
    chat: finish((await chunks(app.post("/v1/chat/completions", { ...chat, stream: true }))).at(-1)),
    text: finish((await chunks(app.post("/v1/completions", { ...text, stream: true }))).at(-1)),
    message: stopped(ofMessage.find(({ type }) => type === "message_delta").delta),
    response: status(ofResponse.at(-1).response),
  };
  assert.deepEqual(parts, whole);
  assert.equal(ofResponse.at(-1).type, `response.${ofResponse.at(-1).response.status}`);
  return whole;
}

/** The demo model with another token that ends its answers. */
async function endingWith(context: TestContext, id: number): Promise<Served> {
  const names = [
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "model.safetensors",
  ];
  const file = async (name: string) => [name, new Uint8Array(await readFile(new URL(name, DEMO)))] as const;
  const files = Object.fromEntries(await Promise.all(names.map(file)));
  for (const name of ["config.json", "generation_config.json"]) {
    const config = JSON.parse(new TextDecoder().decode(files[name]));
    files[name] = new TextEncoder().encode(JSON.stringify({ ...config, eos_token_id: id }));
  }
  const model = (more: object) => load(files, { threads: 1, chatTemplate: PLAIN, ...more });
  const app = asked(createApp({ models: { demo: model } }));
  context.after(() => app.close());
  await app.ready;
  return app;
}

test("the limit, the context and the model's own end have their names everywhere", async (context) => {
  const app = await served(context);
  const limit = { chat: "length", text: "length", message: "max_tokens", response: "incomplete max_output_tokens" };
  assert.deepEqual(await reasons(app), limit);
  const small = await served(context, { contextLength: 16 });
  assert.deepEqual(await reasons(small, { max_tokens: 100 }), { ...limit, message: "model_context_window_exceeded" });
  const [end] = await (await load(DEMO, { threads: 1 })).tokenize(" man");
  const ending = await endingWith(context, end!);
  assert.deepEqual(await reasons(ending), { chat: "stop", text: "stop", message: "end_turn", response: "completed" });
});

test("a stop text, a format and calls have theirs", async (context) => {
  const app = await served(context, { chatTemplate: HERMES });
  const choice = async (path: string, more: object) =>
    (await body(app.post(path, { ...common, max_tokens: 200, ...more }))).choices[0].finish_reason;
  assert.equal(await choice("/v1/completions", { prompt: input, stop: " man" }), "stop");
  const response_format = { type: "json_schema", json_schema: { name: "n", schema: { enum: [1, 2] } } };
  assert.equal(await choice("/v1/chat/completions", { messages, response_format }), "stop");
  const message = await body(app.post("/v1/messages", { ...common, messages, stop_sequences: [" man"] }));
  assert.deepEqual([message.stop_reason, message.stop_sequence], ["stop_sequence", " man"]);

  const properties = { city: { type: "string", maxLength: 8 } };
  const parameters = { type: "object", properties, required: ["city"], additionalProperties: false };
  const tools = [{ type: "function", function: { name: "weather", parameters } }];
  const calling = { messages, tools, tool_choice: "required" };
  // One that is stopped behind its call, and one that is cut within it.
  const one = { ...calling, parallel_tool_calls: false };
  assert.equal(await choice("/v1/chat/completions", one), "tool_calls");
  assert.equal(await choice("/v1/chat/completions", { ...calling, max_tokens: 14 }), "length");
  const own = [{ name: "weather", input_schema: parameters }];
  const tool_choice = { type: "any", disable_parallel_tool_use: true };
  const called = await body(
    app.post("/v1/messages", { ...common, max_tokens: 300, messages, tools: own, tool_choice }),
  );
  assert.equal(called.stop_reason, "tool_use");
});

test("each reason of the engine has a name", () => {
  assert.deepEqual(
    (["stop", "length", "stopped"] as const).map((reason) => [reasonOf(reason, false), reasonOf(reason, true)]),
    [
      ["stop", "tool_calls"],
      ["length", "length"],
      ["stop", "tool_calls"],
    ],
  );
});
