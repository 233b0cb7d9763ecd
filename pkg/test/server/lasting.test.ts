/** What outlasts a failure: streams that break, workers that die, models that idle. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Worker } from "node:worker_threads";
import type { LoadOptions, Model } from "ternlight";
import { createApp } from "ternlight/server";
import { load as loadWith } from "../../src/api/model.ts";
import { owned } from "../../src/platform/node_ports.ts";
import { sse } from "../../src/server/sse.ts";
import { asked, body, CONTINUATION, DEMO, error, events, loader, PLAIN, type SseEvent, served } from "./support/app.ts";

const ask = { model: "demo", prompt: "Once upon a time", max_tokens: 12, temperature: 0 };

const bare = (all: readonly SseEvent[]) =>
  all.map(({ id, data }) => ({ id, ...(data === "[DONE]" ? {} : { ...JSON.parse(data), timings: null }) }));

test("a stream goes on behind the last event that the client has seen", async (context) => {
  const app = await served(context);
  const messages = [{ role: "user", content: "Once upon a time" }];
  const requests: [path: string, body: object][] = [
    ["/v1/completions", { ...ask, stream: true, stream_options: { include_usage: true } }],
    ["/v1/completions", { ...ask, temperature: 1, seed: 5, stream: true }],
    ["/v1/chat/completions", { ...ask, messages, stream: true, logprobs: true }],
    ["/v1/messages", { ...ask, messages, stream: true }],
    [
      "/v1/responses",
      { model: "demo", input: "Once upon a time", temperature: 0, max_output_tokens: 12, stream: true },
    ],
  ];
  for (const [path, request] of requests) {
    const whole = await events(app.post(path, request));
    const ids = whole.flatMap(({ id }) => id ?? []);
    assert.equal(new Set(ids).size, ids.length);
    for (const at of [0, 3, ids.length - 1]) {
      const rest = await events(app.post(path, request, { headers: { "last-event-id": ids[at]! } }));
      assert.deepEqual(bare(rest), bare(whole.slice(at + 1)), `${path} from ${at}`);
    }
  }
});

test("several answers of one stream go on, each where it was", async (context) => {
  const app = await served(context);
  const request = { ...ask, temperature: 1, seed: 5, n: 3, stream: true };
  const whole = await events(app.post("/v1/completions", request));
  const texts = (all: readonly SseEvent[]) => {
    const found = ["", "", ""];
    for (const { data } of all)
      for (const { index, text } of JSON.parse(data === "[DONE]" ? '{"choices":[]}' : data).choices)
        found[index] += text;
    return found;
  };
  const seen = whole.slice(0, 9);
  const rest = await events(app.post("/v1/completions", request, { headers: { "last-event-id": seen.at(-1)!.id! } }));
  const [before, after] = [texts(seen), texts(rest)];
  assert.deepEqual(
    before.map((text, i) => text + after[i]),
    texts(whole),
  );
});

test("a stream does not go on for another request, or where chance decides", async (context) => {
  const app = await served(context);
  const [first] = await events(app.post("/v1/completions", { ...ask, stream: true }));
  const headers = { "last-event-id": first!.id! };
  const other = await error(app.post("/v1/completions", { ...ask, max_tokens: 13, stream: true }, { headers }), 400);
  assert.equal(other.code, "invalid_last_event_id");
  await error(app.post("/v1/completions", { ...ask, stream: true }, { headers: { "last-event-id": "7" } }), 400);
  const chance = { ...ask, temperature: 1, stream: true };
  await error(app.post("/v1/completions", chance, { headers }), 400);
  assert.ok((await events(app.post("/v1/completions", chance))).every(({ id }) => id === undefined));
});

test("a stream of up to 16 answers has ids, and one of more says that it cannot go on", async (context) => {
  const app = await served(context);
  const stream = (n: number, headers = {}) =>
    app.post("/v1/completions", { ...ask, n, max_tokens: 2, seed: 1, stream: true }, { headers });
  const some = (await events(stream(16))).filter(({ data }) => data !== "[DONE]");
  assert.ok(some.every(({ id }) => id !== undefined));
  const many = await events(stream(17));
  assert.ok(many.every(({ id }) => id === undefined));
  const refused = await error(stream(17, { "last-event-id": some.at(-1)!.id! }), 400);
  assert.match(refused.message, /a stream of 17 answers cannot go on, one of 16 can/);
});

test("a worker that dies is replaced: what was pending is a 500, the next request works", {
  timeout: 60_000,
}, async (context) => {
  const orders = new BroadcastChannel(`ternlight server ${process.pid}`);
  context.after(() => orders.close());
  let loads = 0;
  const script = new URL("../api/support/pool-worker.mjs", import.meta.url);
  const spawnEngine = () => owned(new Worker(script, { workerData: { orders: orders.name } }));
  const load = () => {
    loads++;
    return loadWith({ spawnEngine, base: null }, DEMO.pathname, { threads: 1, chatTemplate: PLAIN });
  };
  const records: { status: number; error?: string }[] = [];
  const app = asked(createApp({ models: { demo: load }, onRequest: (record) => records.push(record) }));
  context.after(() => app.close());
  await app.ready;
  const long = { ...ask, max_tokens: 400, ignore_eos: true };
  const plain = app.post("/v1/completions", long);
  const streamed = app.post("/v1/completions", { ...long, stream: true });
  assert.equal((await streamed).status, 200);
  orders.postMessage("end");
  const failed = await error(plain, 500);
  assert.deepEqual([failed.code, failed.type], ["worker_failed", "server_error"]);
  const last = (await events(streamed)).at(-1)!;
  assert.equal(last.event, "error");
  assert.equal(JSON.parse(last.data).error.code, "worker_failed");
  const { choices } = await body(app.post("/v1/completions", ask));
  assert.equal(choices[0].text, CONTINUATION);
  assert.equal(loads, 2);
  assert.ok(records.some(({ status, error }) => status === 500 && error?.includes("WorkerFailed")));

  // One that dies while nobody asks is replaced too.
  orders.postMessage("end");
  await new Promise((resolve) => setTimeout(resolve, 500));
  assert.equal((await body(app.post("/v1/completions", ask))).choices[0].text, CONTINUATION);
  assert.equal(loads, 3);
});

test("a stream that is silent gets comments, and its reader's slowness fills no memory", async () => {
  const silent = async function* () {
    await new Promise((resolve) => setTimeout(resolve, 100));
    yield { data: "end" };
  };
  const pinged = sse(silent(), { pingSeconds: 0.02, onGone: () => {} });
  assert.match(await new Response(pinged as BodyInit).text(), /^(: ping\n\n){2,}data: end\n\n$/);

  let made = 0;
  const endless = async function* () {
    for (;;) yield { data: "x".repeat(1000) + made++ };
  };
  const reader = sse(endless(), { pingSeconds: 1, onGone: () => {} }).getReader();
  await reader.read();
  await new Promise((resolve) => setTimeout(resolve, 50));
  assert.ok(made < 500, `${made} events were made for one that was read`);
  await reader.cancel();
});

test("a model that nobody asks is unloaded too, also after it was replaced", async (context) => {
  const lost: (() => void)[] = [];
  const model = async (more: LoadOptions): Promise<Model> => {
    const found = await loader()(more);
    const ended = new Promise<void>((resolve) => lost.push(resolve));
    // Its worker seems to die where the test says so.
    return new Proxy(found, {
      get: (target, name) => {
        if (name === "lost") return ended;
        const value = Reflect.get(target, name);
        return typeof value === "function" ? value.bind(target) : value;
      },
    });
  };
  const app = asked(createApp({ models: { demo: model }, idleUnload: 1 }));
  context.after(() => app.close());
  const state = async () => (await body(app.get("/status"))).models[0].state;
  const idles = async () => {
    for (const end = Date.now() + 5000; (await state()) !== "idle"; ) {
      assert.ok(Date.now() < end, "it stays loaded");
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  };
  await app.ready;
  assert.equal(await state(), "ready");
  lost[0]!();
  await new Promise((resolve) => setTimeout(resolve));
  await idles();
  assert.equal(lost.length, 2);
  assert.equal((await body(app.post("/v1/completions", ask))).choices[0].text, CONTINUATION);
  assert.equal(lost.length, 3);
  await idles();
});

test("a model that is unloaded while its status is being asked for is told as idle", async (context) => {
  const model = async (more: LoadOptions): Promise<Model> => {
    const found = await loader()(more);
    let closed = () => {};
    const closing = new Promise<void>((resolve) => {
      closed = resolve;
    });
    const late: Pick<Model, "close" | "status"> = {
      close: () => {
        closed();
        return found.close();
      },
      status: () => closing.then(() => found.status()),
    };
    return new Proxy(found, {
      get: (target, name) => {
        const value = Reflect.get(name in late ? late : target, name);
        return typeof value === "function" ? value.bind(target) : value;
      },
    });
  };
  const app = asked(createApp({ models: { demo: model }, idleUnload: 1 }));
  context.after(() => app.close());
  await app.ready;
  assert.deepEqual((await body(app.get("/status"))).models, [{ name: "demo", state: "idle" }]);
});

test("a model that was given loaded is not loaded again: a lost one is told, and no idle time is taken", async (context) => {
  let lose = () => {};
  const lost = new Promise<void>((resolve) => {
    lose = resolve;
  });
  const found = await loader()({});
  context.after(() => found.close());
  const model: Model = new Proxy(found, {
    get: (target, name) => {
      if (name === "lost") return lost;
      const value = Reflect.get(target, name);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
  assert.throws(() => createApp({ models: { demo: model }, idleUnload: 1 }), /idleUnload must be left out/);
  assert.throws(
    () => createApp({ models: { demo: "demo.gguf" as never } }),
    /models\.demo must be a loaded model or a function that loads one, not "demo\.gguf"/,
  );
  const nothing = createApp({ models: { demo: (async () => {}) as never } });
  await assert.rejects(nothing.ready, /models\.demo must be a function that loads a model, not undefined/);
  const app = asked(createApp({ models: { demo: model } }));
  await app.ready;
  await body(app.post("/v1/completions", ask));
  lose();
  await new Promise((resolve) => setTimeout(resolve));
  const refused = await app.post("/v1/completions", ask);
  assert.equal(refused.headers.get("x-should-retry"), "false");
  assert.equal((await error(refused, 503)).code, "model_lost");
  assert.equal((await body(app.get("/readyz"), 503)).status, "failed");
});

test("a model that idles is unloaded, and loaded again for the next request", async (context) => {
  let loads = 0;
  const app = asked(
    createApp({
      models: {
        demo: (more) => {
          loads++;
          return loader()(more);
        },
      },
      idleUnload: 1,
    }),
  );
  context.after(() => app.close());
  await app.ready;
  await body(app.post("/v1/completions", ask));
  await new Promise((resolve) => setTimeout(resolve, 1300));
  assert.equal((await body(app.get("/status"))).models[0].state, "idle");
  assert.equal((await app.get("/readyz")).status, 200);
  // Looking at it loads nothing.
  const looked = await app.get("/slots");
  assert.equal(looked.status, 503);
  assert.equal(((await looked.json()) as { error: { code: string } }).error.code, "model_unloaded");
  assert.match(await (await app.get("/metrics")).text(), /^ternlight_model_ready\{model="demo"\} 1$/m);
  assert.equal((await body(app.post("/v1/completions", ask))).choices[0].text, CONTINUATION);
  assert.equal(loads, 2);
});
