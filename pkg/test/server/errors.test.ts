/** What is refused, and how: every client branches on these statuses and bodies. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { createApp, type RequestRecord } from "ternlight/server";
import { toApiError } from "../../src/openai/errors.ts";
import { missingTemplate } from "../../src/text/template_source.ts";
import { EngineError } from "../../src/types/errors.ts";
import { asked, body, error, loader, parseEvents, served } from "./support/app.ts";

const ask = { model: "demo", prompt: "Once upon a time", max_tokens: 4, temperature: 0 };

test("an error has a message, a type, a param and a code", async (context) => {
  const app = await served(context);
  const completions = (body: unknown) => app.post("/v1/completions", body);
  const missing = await error(completions({ ...ask, model: "gpt-4" }), 404);
  assert.deepEqual([missing.code, missing.param], ["model_not_found", "model"]);
  assert.equal((await error(completions({ ...ask, suffix: "x" }), 400)).param, "suffix");
  assert.equal((await error(completions({ ...ask, best_of: 3 }), 400)).param, "best_of");
  assert.equal((await error(completions({ ...ask, prompt: [99_999_999] }), 400)).param, "prompt");
  assert.equal((await error(completions(""), 400)).message, "the body is empty: it must be a JSON object");
  await error(completions("{"), 400);
  await error(completions("[]"), 400);
  await error(app.get("/v1/nothing"), 404);
  const wrong = await app.get("/v1/completions");
  assert.equal(wrong.headers.get("allow"), "POST");
  await error(wrong, 405);
  await error(app.get("/v1/models/none"), 404);
});

test("messages name the request's fields, as params do, and no option or method", async (context) => {
  const app = await served(context);
  const told = async (path: string, more: object) => {
    const { message, param } = await error(app.post(path, { ...ask, ...more }), 400);
    assert.ok(message.startsWith(param), `${param}: ${message}`);
    return [param, message.slice(param.length)];
  };
  const expected = ": no such token: expected an id of the vocabulary, found 99999999";
  assert.deepEqual(await told("/v1/completions", { logit_bias: { 99999999: 1 } }), ["logit_bias", expected]);
  const [bias, infinite] = await told("/v1/completions", { logit_bias: [[1, 1e39]] });
  assert.deepEqual([bias, infinite.slice(0, 8)], ["logit_bias", " must be"]);
  assert.equal((await told("/v1/completions", { prompt: null }))[1], ": nothing to compute: the prompt is empty");
  const json_schema = { name: "n", schema: { type: "strange" } };
  const [format, reason] = await told("/v1/completions", { response_format: { type: "json_schema", json_schema } });
  assert.deepEqual([format, reason], ["response_format", ", #: Invalid type: strange"]);
  // Each interface has its own field for a format.
  const { schema } = json_schema;
  const messages = [{ role: "user", content: "Once" }];
  assert.deepEqual(await told("/v1/completions", { json_schema: schema }), ["json_schema", reason]);
  assert.deepEqual(await told("/v1/chat/completions", { messages, json_schema: schema }), ["json_schema", reason]);
  const text = { format: { type: "json_schema", name: "n", schema } };
  const { message, param } = await error(app.post("/v1/responses", { model: ask.model, input: "Once", text }), 400);
  assert.deepEqual([param, message], ["text.format", `text.format${reason}`]);
});

test("a model without a template says what a client and an operator can do", () => {
  const { status, message, param, code } = toApiError(missingTemplate(), "messages");
  assert.deepEqual([status, param, code], [400, "messages", "missing_template"]);
  assert.match(message, /\/v1\/completions.*--chat-template/);
});

test("paths with double slashes, and without /v1, lead where they mean to", async (context) => {
  const app = await served(context);
  assert.equal((await body(app.get("//v1//models"))).data.length, 1);
  assert.equal((await body(app.get("/v1/models/"))).data.length, 1);
  assert.equal(
    (await body(app.post("//v1/chat/completions", { ...ask, messages: [{ role: "user", content: "Hi" }] }))).object,
    "chat.completion",
  );
  assert.equal((await body(app.post("/completions", ask))).object, "text_completion");
});

test("a body without bounds is refused, and so is one that is no text", async (context) => {
  const app = await served(context, {}, { maxBody: 100_000 });
  const send = (body: BodyInit, headers: Record<string, string> = {}) =>
    app.fetch(
      new Request("http://localhost/v1/completions", { method: "POST", body, headers, duplex: "half" } as RequestInit),
    );
  await error(send("x".repeat(100_001)), 413);
  let sent = 0;
  const endless = new ReadableStream({
    pull(controller) {
      sent += 10_000;
      controller.enqueue(new Uint8Array(10_000).fill(32));
    },
  });
  await error(send(endless), 413);
  // What is too much is dropped for a while, so that a client that sends reads the answer.
  assert.ok(sent < 68_000_000, `${sent} bytes were taken`);
  assert.match((await error(send(new Uint8Array([0x7b, 0xff, 0x7d])), 400)).message, /UTF-8/);
  assert.match((await error(send("[".repeat(50_000)), 400)).message, /nests/);
  assert.match((await error(send(`{"a":${"[".repeat(101)}${"]".repeat(101)}}`), 400)).message, /nests/);
  await error(send("{}", { origin: "http://evil.example", "content-type": "text/plain" }), 415);
});

test("hostile fields are typed errors", async (context) => {
  const app = await served(context);
  const chat = (more: object) =>
    app.post("/v1/chat/completions", { model: "demo", messages: [{ role: "user", content: "Hi" }], ...more });
  assert.equal((await error(chat({ stop: Array(10_000).fill("x") }), 400)).param, "stop");
  // Forty levels of alternatives: by name they are 2^40 of them in a few kilobytes.
  const $defs: Record<string, object> = { a0: { type: "string" } };
  for (let i = 1; i <= 40; i++) $defs[`a${i}`] = { anyOf: [1, 2].map(() => ({ $ref: `#/$defs/a${i - 1}` })) };
  let deep: object = { type: "string" };
  for (let i = 0; i < 28; i++) deep = { anyOf: [{ type: "array", items: deep }, { type: "number" }] };
  const begun = performance.now();
  for (const schema of [{ $defs, $ref: "#/$defs/a40" }, deep]) {
    const response_format = { type: "json_schema", json_schema: { name: "n", schema } };
    const found = await chat({ response_format, max_tokens: 4 });
    const { error: refused, choices } = await found.json();
    assert.ok(
      found.status === 200 ? choices.length === 1 : refused.param === "response_format",
      JSON.stringify(refused),
    );
  }
  assert.ok(performance.now() - begun < 30_000, "it compiled without end");
  const nested = {
    type: "json_schema",
    json_schema: { name: "n", schema: JSON.parse(`${'{"not":'.repeat(50)}{}${"}".repeat(50)}`) },
  };
  assert.equal((await error(chat({ response_format: nested }), 400)).param, "response_format");
  assert.equal(
    (await error(chat({ tools: [{ type: "function", function: { name: "x", parameters: [] } }] }), 400)).param,
    "tools[0].function.parameters",
  );
  assert.equal((await error(chat({ __proto__: null, messages: "Hi" }), 400)).param, "messages");
  assert.equal((await body(chat({ max_tokens: 1, ["__proto__"]: { polluted: 1 } }))).object, "chat.completion");
  assert.equal(({} as { polluted?: number }).polluted, undefined);
});

test("a full queue is a 429 that says when to come again, and nothing else is", async (context) => {
  const app = await served(context, { maxSequences: 1, maxWaiting: 1 });
  const slow = { ...ask, max_tokens: 300, ignore_eos: true };
  const all = await Promise.all(Array.from({ length: 6 }, () => app.post("/v1/completions", slow)));
  const full = all.filter(({ status }) => status === 429);
  assert.deepEqual([...new Set(all.map(({ status }) => status))].sort(), [200, 429]);
  assert.ok(full.length >= 1 && full.length <= 4);
  for (const response of full) {
    assert.match(response.headers.get("retry-after")!, /^[1-9]\d*$/);
    const ms = Number(response.headers.get("retry-after-ms"));
    assert.ok(ms >= 50 && ms <= 60_000, String(ms));
    assert.equal((await error(response, 429)).code, "queue_full");
  }
});

test("requests under way are bounded, those among them whose bodies still come", async (context) => {
  const app = await served(context, {}, { maxRequests: 2 });
  const first = app.post("/v1/completions", { ...ask, max_tokens: 300, ignore_eos: true });
  let go = () => {};
  const body = new ReadableStream({
    start(controller) {
      go = () => {
        controller.enqueue(new TextEncoder().encode(JSON.stringify(ask)));
        controller.close();
      };
    },
  });
  const init = { method: "POST", body, duplex: "half" } as RequestInit;
  const second = app.fetch(new Request("http://localhost/v1/completions", init));
  const refused = await app.post("/v1/completions", ask);
  assert.ok(Number(refused.headers.get("retry-after-ms")) >= 50);
  assert.equal((await error(refused, 429)).code, "queue_full");
  go();
  assert.deepEqual([(await first).status, (await second).status], [200, 200]);
  assert.equal((await app.post("/v1/completions", ask)).status, 200);
});

test("a body that does not end is given up", async (context) => {
  const app = await served(context);
  context.mock.timers.enable({ apis: ["setTimeout"] });
  let cancelled = false;
  const body = new ReadableStream({
    start: (controller) => controller.enqueue(new Uint8Array([0x7b])),
    cancel: () => {
      cancelled = true;
    },
  });
  const init = { method: "POST", body, duplex: "half" } as RequestInit;
  const late = app.fetch(new Request("http://localhost/v1/completions", init));
  // The body is being read by then.
  for (let i = 0; i < 20; i++) await new Promise((resolve) => setImmediate(resolve));
  context.mock.timers.tick(30_000);
  const response = await late;
  assert.equal(response.headers.get("connection"), "close");
  await error(response, 408);
  assert.ok(cancelled);
});

test("each answer has an id, which the log has too", async (context) => {
  const records: { id: string; status: number; path: string; promptTokens?: number }[] = [];
  const app = await served(context, {}, { onRequest: (record) => records.push(record) });
  const ids = [];
  for (const [path, body] of [
    ["/v1/completions", ask],
    ["/v1/completions", { ...ask, stream: true }],
    // Refused when its stream is there already, but no event.
    ["/v1/completions", { ...ask, prompt: "once ".repeat(600), stream: true }],
    ["/v1/completions", { ...ask, model: "none" }],
    ["/nothing", {}],
  ] as const) {
    const response = await app.post(path, body);
    assert.match(response.headers.get("x-request-id") ?? "", /^req_[0-9a-f]{32}$/);
    assert.equal(response.headers.get("request-id"), response.headers.get("x-request-id"));
    await response.text();
    ids.push(response.headers.get("x-request-id"));
  }
  assert.deepEqual(
    records.map(({ id, status }) => [id, status]),
    ids.map((id, i) => [id, [200, 200, 400, 404, 404][i]]),
  );
  assert.deepEqual(
    records.map(({ promptTokens }) => promptTokens),
    [4, 4, undefined, undefined, undefined],
  );
});

test("keys are asked for everywhere but at the health checks", async (context) => {
  const app = await served(context, {}, { apiKeys: ["one", "two"] });
  const none = await app.get("/v1/models");
  assert.equal(none.headers.get("www-authenticate"), "Bearer");
  assert.equal((await error(none, 401)).code, "invalid_api_key");
  await error(app.get("/v1/models", { headers: { authorization: "Bearer three" } }), 401);
  const right: Record<string, string>[] = [{ authorization: "Bearer two" }, { "x-api-key": "one" }];
  for (const headers of right) assert.equal((await app.get("/v1/models", { headers })).status, 200);
  for (const path of ["/health", "/livez", "/readyz"]) assert.equal((await app.get(path)).status, 200);
});

test("keys count without the space around them, and none is empty", async (context) => {
  const app = await served(context, {}, { apiKeys: [" one\n"] });
  assert.equal((await app.get("/v1/models", { headers: { "x-api-key": "one" } })).status, 200);
  for (const apiKeys of [[""], ["one", " "]])
    assert.throws(() => createApp({ models: { demo: loader() }, apiKeys }), /apiKeys must be/);
  // Of a key that no header carries, the message shows what is wrong and no more.
  for (const secret of ["sk-\u00e9", "sk-\n1"])
    assert.throws(
      () => createApp({ models: { demo: loader() }, apiKeys: ["one", secret] }),
      (error: Error) => {
        assert.match(error.message, /apiKeys\[1\] must be of printable ASCII characters/);
        return !error.message.includes("sk-");
      },
    );
});

test("without its key a health check tells the state and nothing of the models", async (context) => {
  const app = await served(context, { health: { share: 0.005 } }, { apiKeys: ["k"] });
  const headers = { authorization: "Bearer k" };
  for (const path of ["/health", "/readyz"]) {
    assert.deepEqual(await body(app.get(path)), { status: "ok" });
    assert.deepEqual(await body(app.get(path, { headers: { authorization: "Bearer x" } })), { status: "ok" });
    assert.ok((await body(app.get(path, { headers }))).models.demo.signals);
  }
  const never = () => new Promise<never>(() => {});
  const loading = asked(createApp({ models: { hidden: never }, apiKeys: ["k"] }));
  const found = await body(loading.get("/health"), 503);
  assert.deepEqual([found.status, found.error.code], ["loading", "model_loading"]);
  assert.doesNotMatch(JSON.stringify(found), /hidden|progress|bytes/);
  assert.match(JSON.stringify(await body(loading.get("/health", { headers }), 503)), /hidden/);
});

test("pages of other origins are let in where they are named", async (context) => {
  const app = await served(context, {}, { cors: ["https://app.example"], apiKeys: ["k"] });
  const from = (origin: string) =>
    app.fetch(
      new Request("http://localhost/v1/models", {
        method: "OPTIONS",
        headers: { origin, "access-control-request-method": "POST" },
      }),
    );
  assert.equal((await from("https://app.example")).headers.get("access-control-allow-origin"), "https://app.example");
  assert.equal((await from("https://evil.example")).headers.get("access-control-allow-origin"), null);
  const shown = (await from("https://app.example")).headers.get("access-control-expose-headers") ?? "";
  // Clients of OpenAI's protocol read the first, those of Anthropic's the second.
  for (const name of ["x-request-id", "request-id"]) assert.ok(shown.split(",").includes(name), shown);
  const closed = await served(context);
  const response = await closed.get("/v1/models", { headers: { origin: "https://app.example" } });
  assert.equal(response.headers.get("access-control-allow-origin"), null);
});

test("while a model loads, and when it cannot be loaded, requests are a 503", async (context) => {
  let go = () => {};
  const gate = new Promise<void>((resolve) => {
    go = resolve;
  });
  const app = asked(
    createApp({
      models: {
        demo: async (more) => {
          await gate;
          return loader()(more);
        },
      },
    }),
  );
  context.after(() => app.close());
  const early = await app.post("/v1/completions", ask);
  assert.ok(early.headers.get("retry-after"));
  assert.equal((await error(early, 503)).code, "model_loading");
  assert.equal((await body(app.get("/readyz"), 503)).status, "loading");
  assert.equal((await app.get("/livez")).status, 200);
  go();
  await app.ready;
  assert.equal((await app.get("/readyz")).status, 200);
  const broken = asked(createApp({ models: { demo: () => Promise.reject(new Error("/home/secret is gone")) } }));
  await assert.rejects(broken.ready, /secret/);
  const refused = await broken.post("/v1/completions", ask);
  assert.equal(refused.headers.get("retry-after"), "5");
  const failed = await error(refused, 503);
  assert.equal(failed.code, "load_failed");
  assert.ok(!JSON.stringify(failed).includes("secret"));
});

test("a model that could not be loaded is tried again by itself, and the log says why", async (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  let broken = true;
  const records: RequestRecord[] = [];
  const app = asked(
    createApp({
      models: { demo: (more) => (broken ? Promise.reject(new Error("no such disk")) : loader()(more)) },
      onRequest: (record) => records.push(record),
    }),
  );
  context.after(() => app.close());
  await assert.rejects(app.ready, /disk/);
  await error(app.post("/v1/completions", ask), 503);
  assert.match(records.at(-1)!.error!, /no such disk/);
  // The second try fails, too, and the third comes twice as late.
  context.mock.timers.tick(5000);
  await new Promise((resolve) => setImmediate(resolve));
  const refused = await app.post("/v1/completions", ask);
  assert.deepEqual([refused.status, refused.headers.get("retry-after")], [503, "10"]);
  broken = false;
  context.mock.timers.tick(10_000);
  context.mock.timers.reset();
  while ((await app.get("/readyz")).status === 503) await new Promise((resolve) => setTimeout(resolve, 20));
  assert.equal((await app.post("/v1/completions", ask)).status, 200);
});

test("bodies of very many parts are refused by their number, and encoded ones by their encoding", async (context) => {
  const app = await served(context);
  const chat = (more: object) => app.post("/v1/chat/completions", { model: "demo", ...more });
  const messages = Array(16_385).fill({ role: "user", content: "a" });
  assert.match((await error(chat({ messages }), 400)).message, /^messages must have at most 16384 items, not 16385/);
  const few = messages.slice(0, 1);
  const tools = Array(1025).fill({ type: "function", function: { name: "f" } });
  assert.match((await error(chat({ messages: few, tools }), 400)).message, /^tools must have at most 1024 items/);
  const logit_bias = Object.fromEntries(Array.from({ length: 16_385 }, (_, i) => [i, 1]));
  assert.match(
    (await error(chat({ messages: few, logit_bias }), 400)).message,
    /logit_bias must have at most 16384 keys/,
  );
  const headers = { "content-encoding": "gzip" };
  assert.match((await error(app.post("/v1/completions", ask, { headers }), 415)).message, /content-encoding gzip/);
  const content = "a ".repeat(140_000);
  assert.match((await error(app.post("/tokenize", { content }), 400)).message, /content may have 262144 characters/);
});

test("a lack of memory and a model that is closed are a 503 that says when to come again", () => {
  for (const [code, name] of [
    ["OutOfMemory", "out_of_memory"],
    ["Closed", "closed"],
  ] as const) {
    const { status, headers, code: found } = toApiError(new EngineError(code, "", {}), "prompt");
    assert.deepEqual([status, found], [503, name]);
    assert.deepEqual(headers, { "retry-after": "1", "retry-after-ms": "1000" });
  }
});

test("a server that stops finishes what runs, and refuses what comes", async (context) => {
  const app = await served(context);
  const running = app.post("/v1/completions", { ...ask, max_tokens: 200, ignore_eos: true });
  while (app.active === 0) await new Promise((resolve) => setTimeout(resolve, 1));
  const drained = app.drain(20_000);
  const refused = await app.post("/v1/completions", ask);
  assert.equal(refused.headers.get("retry-after"), "1");
  assert.equal((await error(refused, 503)).code, "stopping");
  assert.equal((await app.get("/readyz")).status, 503);
  assert.equal((await body(running)).usage.completion_tokens, 200);
  await drained;
});

test("what does not end in time is told so in its stream", async (context) => {
  const app = await served(context);
  const response = await app.post("/v1/completions", { ...ask, max_tokens: 3000, ignore_eos: true, stream: true });
  const text = response.text();
  await app.drain(50);
  const last = parseEvents(await text).at(-1)!;
  assert.equal(last.event, "error");
  assert.equal(JSON.parse(last.data).error.code, "stopping");
});
