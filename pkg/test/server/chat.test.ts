/** Chat completions: messages, streams, tools, formats. */

import assert from "node:assert/strict";
import { test } from "node:test";
import type { Generation, Model } from "ternlight";
import { createApp } from "ternlight/server";
import { asked, body, CONTINUATION, chunks, error, HERMES, loader, served } from "./support/app.ts";

const messages = [{ role: "user", content: "Once upon a time" }];
const greedy = { model: "demo", messages, temperature: 0, max_tokens: 12 };

test("messages of every form are answered", async (context) => {
  const app = await served(context);
  const one = await body(app.post("/v1/chat/completions", greedy));
  assert.equal(one.object, "chat.completion");
  const message = { role: "assistant", content: CONTINUATION, refusal: null };
  assert.deepEqual(one.choices, [{ index: 0, message, logprobs: null, finish_reason: "length" }]);
  const forms = [
    [
      { role: "developer", content: "Once upon " },
      { role: "user", content: "a time" },
    ],
    [
      {
        role: "user",
        content: [
          { type: "text", text: "Once upon" },
          { type: "text", text: " a time" },
        ],
      },
    ],
    [
      { role: "assistant", content: null },
      { role: "user", content: "Once upon a time", name: "x" },
    ],
  ];
  for (const form of forms) {
    const { choices } = await body(app.post("/v1/chat/completions", { ...greedy, messages: form }));
    assert.equal(choices[0].message.content, CONTINUATION);
  }
  const named = await body(app.post("/v1/chat/completions", { ...greedy, max_tokens: 3, max_completion_tokens: 2 }));
  assert.equal(named.usage.completion_tokens, 2);
});

test("a stream begins with the role and ends with a reason", async (context) => {
  const app = await served(context);
  const all = await chunks(
    app.post("/v1/chat/completions", { ...greedy, stream: true, stream_options: { include_usage: true } }),
  );
  assert.deepEqual(all[0].choices[0].delta, { role: "assistant", content: "" });
  const deltas = all.flatMap(({ choices }) =>
    choices.map(({ delta }: { delta: { content?: string } }) => delta.content ?? ""),
  );
  assert.equal(deltas.join(""), CONTINUATION);
  assert.equal(all.at(-2).choices[0].finish_reason, "length");
  assert.deepEqual(all.at(-1).choices, []);
  assert.equal(all.at(-1).usage.prompt_tokens, 4);
  assert.equal(new Set(all.map(({ id }) => id)).size, 1);
});

test("log-probabilities have their tokens and bytes", async (context) => {
  const app = await served(context);
  const ask = { ...greedy, logprobs: true, top_logprobs: 2 };
  const { choices } = await body(app.post("/v1/chat/completions", ask));
  const { content } = choices[0].logprobs;
  assert.equal(content.length, 12);
  assert.equal(content.map(({ token }: { token: string }) => token).join(""), CONTINUATION);
  for (const { token, logprob, bytes, top_logprobs: top } of content) {
    assert.deepEqual(bytes, [...new TextEncoder().encode(token)]);
    assert.deepEqual(top[0], { token, logprob, bytes });
    assert.equal(top.length, 2);
  }
  const streamed = await chunks(app.post("/v1/chat/completions", { ...ask, stream: true }));
  assert.deepEqual(
    streamed.flatMap(({ choices }) => choices[0].logprobs?.content ?? []),
    content,
  );
});

/** Reads every answer when it is over, as a process does whose main thread is late. */
function late(model: Model): Model {
  const chat: Model["chat"] = (...ask) => {
    const generation = model.chat(...ask);
    const pieces = generation[Symbol.asyncIterator].bind(generation);
    generation[Symbol.asyncIterator] = async function* () {
      await generation.finished;
      yield* { [Symbol.asyncIterator]: pieces };
    } as Generation[typeof Symbol.asyncIterator];
    return generation;
  };
  return new Proxy(model, {
    get(of, name) {
      if (name === "chat") return chat;
      const value = Reflect.get(of, name, of);
      return typeof value === "function" ? value.bind(of) : value;
    },
  });
}

const tools = [
  {
    type: "function",
    function: {
      name: "weather",
      parameters: {
        type: "object",
        properties: { city: { type: "string", maxLength: 8 } },
        required: ["city"],
        additionalProperties: false,
      },
    },
  },
];

test("what the engine writes beyond the one call of an answer counts for nothing", async (context) => {
  const ask = { ...greedy, tools, tool_choice: "required", parallel_tool_calls: false, max_tokens: 200 };
  const soon = await served(context, { chatTemplate: HERMES });
  const behind = loader({ chatTemplate: HERMES });
  const app = asked(createApp({ models: { demo: async (more) => late(await behind(more)) } }));
  context.after(() => app.close());
  await app.ready;
  const [first, second] = [
    await body(soon.post("/v1/chat/completions", ask)),
    await body(app.post("/v1/chat/completions", ask)),
  ];
  for (const { choices, usage } of [first, second]) {
    assert.equal(choices[0].finish_reason, "tool_calls");
    assert.equal(choices[0].message.tool_calls.length, 1);
    assert.ok(usage.completion_tokens < 200);
  }
  assert.equal(second.usage.completion_tokens, first.usage.completion_tokens);
});

test("a call that must come does, whole and in parts", async (context) => {
  const app = await served(context, { chatTemplate: HERMES });
  const ask = { ...greedy, tools, tool_choice: "required", parallel_tool_calls: false, max_tokens: 200, seed: 1 };
  const { choices } = await body(app.post("/v1/chat/completions", ask));
  const { message, finish_reason: reason } = choices[0];
  assert.equal(reason, "tool_calls");
  assert.equal(message.content, null);
  const [call] = message.tool_calls;
  assert.match(call.id, /^call_\w+$/);
  assert.deepEqual([call.type, call.function.name], ["function", "weather"]);
  assert.equal(typeof JSON.parse(call.function.arguments).city, "string");

  const all = await chunks(app.post("/v1/chat/completions", { ...ask, stream: true }));
  const deltas = all.flatMap(({ choices }) => choices[0].delta.tool_calls ?? []);
  assert.deepEqual(
    { ...deltas[0], id: "" },
    { index: 0, id: "", type: "function", function: { name: "weather", arguments: "" } },
  );
  assert.ok(deltas.length > 3, "the arguments come in parts");
  assert.ok(deltas.every(({ index }) => index === 0));
  assert.equal(deltas.map(({ function: { arguments: part } }) => part).join(""), call.function.arguments);
  assert.equal(all.at(-1).choices[0].finish_reason, "tool_calls");

  const chosen = { ...ask, tool_choice: { type: "function", function: { name: "weather" } } };
  assert.equal((await body(app.post("/v1/chat/completions", chosen))).choices[0].message.tool_calls.length, 1);
  const unknown = { ...ask, tool_choice: { type: "function", function: { name: "none" } } };
  assert.equal((await error(app.post("/v1/chat/completions", unknown), 400)).param, "tool_choice");
  assert.equal(
    (await error(app.post("/v1/chat/completions", { ...greedy, tool_choice: "required" }), 400)).param,
    "tool_choice",
  );
});

test("fields that are null or not known are as if they were left out", async (context) => {
  const app = await served(context);
  const { components } = await body(app.get("/openapi.json"));
  for (const [path, name, given] of [
    ["/v1/chat/completions", "createChatCompletion", greedy],
    ["/v1/completions", "createCompletion", { ...greedy, prompt: "Once upon a time" }],
  ] as const) {
    const nothing = Object.keys(components.schemas[name].properties).map((field) => [field, null]);
    const more = { ...Object.fromEntries(nothing), unheard_of: { x: 1 }, another: [1] };
    const [plain, full] = await Promise.all([given, { ...more, ...given }].map((ask) => body(app.post(path, ask))));
    assert.deepEqual(full.choices, plain.choices, path);
  }
});

test("several calls have an index and an id each, streamed as well", async (context) => {
  const app = await served(context, { chatTemplate: HERMES });
  const ask = { ...greedy, tools, tool_choice: "required", max_tokens: 200, seed: 1 };
  const { choices } = await body(app.post("/v1/chat/completions", ask));
  const calls = choices[0].message.tool_calls;
  assert.ok(calls.length > 1, `${calls.length} calls`);
  assert.equal(new Set(calls.map(({ id }: { id: string }) => id)).size, calls.length);
  const streamed = await chunks(app.post("/v1/chat/completions", { ...ask, stream: true }));
  const found: { id: string; name: string; arguments: string }[] = [];
  for (const { index, id, function: called } of streamed.flatMap(({ choices }) => choices[0].delta.tool_calls ?? [])) {
    if (id !== undefined) assert.equal(index, found.push({ id, name: called.name, arguments: "" }) - 1);
    found[index]!.arguments += called.arguments;
  }
  assert.equal(new Set(found.map(({ id }) => id)).size, calls.length);
  assert.deepEqual(
    found.map(({ name, arguments: text }) => ({ name, arguments: text })),
    calls.map((call: { function: object }) => call.function),
  );
});

test("an answer keeps to its format", async (context) => {
  const app = await served(context);
  const schema = { type: "object", properties: { n: { enum: [1, 2] } }, required: ["n"], additionalProperties: false };
  const format = (response_format: object) =>
    app.post("/v1/chat/completions", { ...greedy, max_tokens: 200, response_format });
  const strict = await body(format({ type: "json_schema", json_schema: { name: "n", schema, strict: true } }));
  assert.ok([1, 2].includes(JSON.parse(strict.choices[0].message.content).n));
  const text = await body(format({ type: "text" }));
  assert.ok(text.choices[0].message.content.startsWith(CONTINUATION));
  const wrong = await error(
    format({ type: "json_schema", json_schema: { name: "n", schema: { type: "nothing" } } }),
    400,
  );
  assert.deepEqual([wrong.param, wrong.code], ["response_format", "bad_constraint"]);
});
