/** Null, and fields that nobody knows, stand for nothing at any depth of a request: clients fill in what they do not use. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { createApp } from "ternlight/server";
import { asked, body, CONTINUATION, error, loader, served } from "./support/app.ts";

const text = "Once upon a time";
const limits = { model: "demo", temperature: 0 };
const extra = { nobody: null, knows: { this: [1] } };
/** Shows a name that is there, even one that is null. */
const NAMED =
  "{% for message in messages %}{% if message.name is defined %}{{ message.name }}: {% endif %}" +
  "{{ message.content or '' }}{% endfor %}";

const parts = (type: string) => [{ type, text, annotations: null, cache_control: null, ...extra }];
const format = { type: "json_schema", name: null, schema: null, strict: null, ...extra };

// biome-ignore lint/suspicious/noExplicitAny: what a reply holds is what the test checks
const requests: Record<string, { path: string; asked: object; said(reply: any): string | undefined }> = {
  chat: {
    path: "/v1/chat/completions",
    asked: {
      ...limits,
      max_tokens: 12,
      messages: [
        { role: "system", content: "", name: null, ...extra },
        { role: "developer", content: "", name: null },
        { role: "user", content: "", name: null, ...extra },
        { role: "assistant", content: null, name: null, refusal: null, tool_calls: null, audio: null, ...extra },
        { role: "user", content: parts("text"), name: null },
      ],
      tools: null,
      stream_options: null,
      response_format: { type: "text", ...extra },
      ...extra,
    },
    said: (reply) => reply.choices[0].message.content,
  },
  completions: {
    path: "/v1/completions",
    asked: { ...limits, max_tokens: 12, prompt: text, stop: null, logit_bias: null, ...extra },
    said: (reply) => reply.choices[0].text,
  },
  responses: {
    path: "/v1/responses",
    asked: {
      ...limits,
      max_output_tokens: 12,
      input: [
        { type: "message", role: "system", content: null, name: null, call_id: null, ...extra },
        { type: "reasoning", id: null, role: null, content: null, summary: [], encrypted_content: null },
        { type: "item_reference", id: "x", name: null, output: null },
        { type: "function_call", call_id: "c", name: "f", arguments: null, role: null, output: null, status: null },
        { type: "function_call_output", call_id: "c", output: null, name: null, arguments: null, content: null },
        { type: null, role: "user", content: parts("input_text"), status: null },
      ],
      text: { format: { type: "text", name: null, schema: null, ...extra }, verbosity: null },
      tools: null,
      reasoning: null,
      ...extra,
    },
    said: (reply) => reply.output[0].content[0].text,
  },
  messages: {
    path: "/v1/messages",
    asked: {
      ...limits,
      max_tokens: 12,
      system: null,
      messages: [{ role: "user", content: parts("text"), ...extra }],
      tools: null,
      tool_choice: null,
      stop_sequences: null,
      ...extra,
    },
    said: (reply) => reply.content[0].text,
  },
};

test("null and unknown fields change no answer", async (context) => {
  const app = await served(context, { chatTemplate: NAMED });
  for (const [name, { path, asked, said }] of Object.entries(requests))
    assert.equal(said(await body(app.post(path, asked))), CONTINUATION, name);
});

test("what clients of peers send is taken: no model's name where there is one, fractions of a bias, many stop texts", async (context) => {
  const app = await served(context);
  const ask = { prompt: "Once upon a time", temperature: 0, max_tokens: 12 };
  const text = async (more: object) => (await body(app.post("/v1/completions", { ...ask, ...more }))).choices[0].text;
  assert.equal(await text({}), CONTINUATION);
  assert.equal(await text({ model: null }), CONTINUATION);
  assert.equal(await text({ logit_bias: { 5: -0.5 } }), CONTINUATION);
  assert.equal(await text({ stop: [..."0123456789", " man"] }), " there lived a");
  assert.equal((await error(app.post("/v1/completions", { ...ask, stop: Array(65).fill("x") }), 400)).param, "stop");
  const messages = [{ role: "user", content: "Hi" }];
  assert.equal((await body(app.post("/v1/messages", { messages, max_tokens: 1 }))).model, "demo");
  const two = asked(createApp({ models: { a: loader(), b: loader() } }));
  context.after(() => two.close());
  await two.ready;
  assert.equal((await error(two.post("/v1/completions", ask), 400)).param, "model");
});

test("no stop texts, no limit and earlier thoughts are taken, and a grammar is refused", async (context) => {
  const app = await served(context);
  const asked = [{ role: "user", content: text }];
  for (const [path, prompt, name] of [
    ["/v1/completions", { prompt: text }, "max_tokens"],
    ["/v1/chat/completions", { messages: asked }, "max_tokens"],
    ["/v1/chat/completions", { messages: asked }, "max_completion_tokens"],
  ] as const) {
    const { choices } = await body(app.post(path, { ...limits, ...prompt, [name]: 12, stop: [] }));
    assert.equal(choices[0].text ?? choices[0].message.content, CONTINUATION);
    const whole = await body(app.post(path, { ...limits, ...prompt, [name]: -1, ignore_eos: true }));
    assert.ok(whole.usage.completion_tokens > 128, `${path} ${name}`);
    const refused = await error(app.post(path, { ...limits, ...prompt, grammar: "root ::= [0-9]" }), 400);
    assert.equal(refused.param, "grammar");
  }
  const thoughts = [
    { type: "thinking", thinking: "Hm", signature: "x" },
    { type: "redacted_thinking", data: "x" },
  ];
  const messages = [
    { role: "assistant", content: [...thoughts, { type: "text", text: "Once upon" }] },
    { role: "user", content: " a time" },
  ];
  const { content } = await body(app.post("/v1/messages", { ...limits, max_tokens: 12, messages }));
  assert.equal(content[0].text, CONTINUATION);
  const count = async (content: unknown) => {
    const messages = [{ role: "assistant", content }];
    return (await body(app.post("/v1/messages/count_tokens", { model: "demo", messages }))).input_tokens;
  };
  assert.equal(await count([...thoughts, { type: "text", text }]), await count(text));
});

test("null and unknown fields of tools, formats and inputs are taken", async (context) => {
  const app = await served(context);
  const chat = { ...limits, max_tokens: 1, messages: [{ role: "user", content: text }] };
  const own = { name: "f", description: null, parameters: null, strict: null, ...extra };
  const tools = [{ type: "function", function: own, ...extra }];
  const json_schema = { name: "x", description: null, schema: null, strict: null, ...extra };
  const { max_tokens: _, ...response } = { ...chat, input: text, max_output_tokens: 1 };
  const called = { ...extra, id: "c", type: "function", function: { name: "f", arguments: "{}", ...extra } };
  const results = [
    { role: "assistant", content: null, tool_calls: [called], name: null },
    { role: "tool", tool_call_id: "c", content: "1", name: null, ...extra },
    { role: "user", content: "x" },
  ];
  const block = { type: "tool_result", tool_use_id: "c", content: null, is_error: null, ...extra };
  const uses = [{ type: "tool_use", id: "c", name: "f", input: {}, cache_control: null }];
  const anthropic = [{ name: "f", description: null, input_schema: { type: "object" }, cache_control: null, ...extra }];
  const bodies: [path: string, body: object][] = [
    ["/v1/chat/completions", { ...chat, tools, tool_choice: null, parallel_tool_calls: null }],
    ["/v1/chat/completions", { ...chat, response_format: { type: "json_schema", json_schema, ...extra } }],
    ["/v1/chat/completions", { ...chat, stream_options: { include_usage: null, ...extra }, stream: null }],
    ["/v1/chat/completions", { ...chat, messages: results }],
    ["/v1/responses", { ...response, tools: [{ ...own, type: "function" }], text: { format, verbosity: null } }],
    ["/v1/messages", { ...chat, tools: anthropic, tool_choice: { type: "auto", disable_parallel_tool_use: null } }],
    [
      "/v1/messages",
      {
        ...chat,
        messages: [...chat.messages, { role: "assistant", content: uses }, { role: "user", content: [block] }],
      },
    ],
    ["/v1/messages/count_tokens", { ...chat, system: null, tools: null, ...extra }],
    ["/v1/embeddings", { model: "demo", input: text, encoding_format: null, dimensions: null, user: null, ...extra }],
    ["/tokenize", { model: null, content: text, prompt: null, messages: null, add_special: null, ...extra }],
    ["/detokenize", { model: null, tokens: [5], ...extra }],
    ["/apply-template", { model: null, messages: chat.messages, add_generation_prompt: null, ...extra }],
  ];
  for (const [path, asked] of bodies) assert.ok(await body(app.post(path, asked)), path);
});
