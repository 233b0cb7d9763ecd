/** Whatever a generation's owner does, it ends, and the process may. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { test } from "node:test";
import { load } from "ternlight";
import source from "ternlight/demo";
import { begun, demo, failure, GREEDY, ONCE, reason } from "./support/model.ts";

const LONG = { temperature: 0, ignoreEos: true, maxTokens: 400 };

test("a session that is closed ends its generation, running or waiting", { timeout: 20_000 }, async (context) => {
  const model = await demo(context, { maxSequences: 1 });
  const [running, waiting] = [model.session(), model.session()];
  const first = running.generate(ONCE, LONG);
  await begun(first);
  const second = waiting.generate(ONCE, LONG);
  await waiting.close();
  assert.equal((await failure(() => second.finished)).code, "Closed");
  await running.close();
  assert.equal((await failure(() => first.finished)).code, "Closed");
  assert.deepEqual((({ running, waiting }) => [running, waiting])(await model.status()), [0, 0]);

  const building = model.session();
  const third = building.generate(ONCE, { ...LONG, responseFormat: "json" });
  await building.close();
  assert.equal((await failure(() => third.finished)).code, "Closed");

  const inside = model.session();
  const read = async () => {
    for await (const _ of inside.generate(ONCE, LONG)) await inside.close();
  };
  assert.equal((await failure(read)).code, "Closed");
  assert.equal((await model.generate(ONCE, GREEDY).finished).finishReason, "length");
});

test("a stream that is cancelled before it was read ends its generation", { timeout: 20_000 }, async (context) => {
  const model = await demo(context);
  const generation = model.generate(ONCE, LONG);
  await generation.toReadableStream().cancel();
  assert.equal((await generation.finished).finishReason, "stopped");
  const again = model.generate(ONCE, GREEDY)[Symbol.asyncIterator]() as AsyncGenerator;
  await again.next();
  let more = 0;
  for await (const _ of again) more++;
  assert.ok(more > 0, "who has looked at the first piece may go on in a loop");
  const other = model.generate(ONCE, LONG);
  await other[Symbol.asyncIterator]().return!();
  assert.equal((await other.finished).finishReason, "stopped");
});

test("a session knows what it holds after a generation that failed", async (context) => {
  const model = await demo(context);
  const session = model.session();
  const control = new AbortController();
  const generation = session.generate(ONCE, { ...LONG, signal: control.signal });
  await begun(generation);
  control.abort();
  await reason(generation.finished);
  assert.equal((await failure(() => session.rewind(10_000))).code, "InvalidArgument");
  const saved = await model.restoreSession(await session.save());
  assert.ok(saved.tokens.length >= ONCE.length);
  assert.deepEqual(session.tokens, saved.tokens);
  await session.rewind(2);
  assert.deepEqual(session.tokens, saved.tokens.slice(0, -2));
  assert.equal((await failure(() => (session.rewind as () => Promise<void>)())).code, "InvalidArgument");
});

test("what a progress handler throws is the load's end", async () => {
  for (const handler of [
    () => {
      throw new RangeError("mine");
    },
    async () => Promise.reject(new RangeError("mine")),
  ]) {
    await assert.rejects(load(source, { onProgress: handler }), { name: "RangeError", message: "mine" });
  }
});

test("a processor must leave the logits where they are", async (context) => {
  const model = await demo(context);
  const away = (logits: Float32Array) => void structuredClone(logits, { transfer: [logits.buffer as ArrayBuffer] });
  const error = await failure(() => model.generate(ONCE, { ...GREEDY, logitsProcessor: away }).finished);
  assert.match(error.message, /logitsProcessor must answer nothing or a Float32Array of 4096 values/);
  const short = () => new Float32Array(3);
  assert.equal(
    (await failure(() => model.generate(ONCE, { ...GREEDY, logitsProcessor: short }).finished)).code,
    "InvalidArgument",
  );
});

test("what cannot be sent to the worker, and what is no id", async (context) => {
  const model = await demo(context);
  const said = [{ role: "user", content: "x", f() {} }];
  const unsent = await failure(() => model.chat(said as never, GREEDY).finished);
  assert.match(unsent.message, /^messages\.0\.f cannot be sent to the engine: /);
  assert.equal(unsent.detail.option, "messages");
  const circle: Record<string, unknown> = {};
  circle.circle = circle;
  const execute = { type: "function", function: { name: "a", parameters: circle }, execute() {} };
  const { message, detail } = await failure(
    () => model.chat([{ role: "user", content: "x" }], { tools: [execute as never] }).finished,
  );
  assert.match(message, /^tools\.0\.execute cannot be sent/);
  assert.equal(detail.option, "tools");
  for (const ids of [[1, undefined], [undefined], new Array(2), [null]] as never[]) {
    assert.match(
      (await failure(() => model.logits(ids))).message,
      /ids\[\d\] must be an integer.*, not (undefined|null)/,
    );
  }
  for (const [option, value] of Object.entries({ adapters: new Array(2), stop: new Array(2), logitBias: new Map() })) {
    const { code, detail } = await failure(() => model.generate("x", { [option]: value } as never).finished);
    assert.deepEqual([code, detail.option], ["InvalidArgument", option]);
  }
  assert.match(
    (await failure(() => model.generate("x", new Map() as never))).message,
    /options must be an object, not a Map/,
  );
  assert.match((await failure(() => model.embed(new Array(2) as never))).message, /texts\[0\] must be/);
  assert.match((await failure(() => model.chat(new Array(2) as never).finished)).message, /messages must be a list of/);
  for (const part of [{ type: "reasoning", text: "secret" }, { text: "x" }]) {
    const messages = [{ role: "user", content: [part] }] as never;
    const { detail } = await failure(() => model.chat(messages).finished);
    assert.equal(detail.option, "messages[0].content[0]");
  }
  assert.match((await failure(() => model.generate(undefined as never))).message, /generate: prompt must be a text or/);
  assert.match((await failure(() => model.embed("text" as never))).message, /texts must be .*, not "text"/);
  assert.match(
    (await failure(() => model.generate("", { foo: 1 } as never))).message,
    /^generate: there is no option "foo"/,
  );
});

test("options may be inherited, and are checked so", async (context) => {
  const model = await demo(context);
  class Few {
    get maxTokens() {
      return 3;
    }
  }
  assert.equal((await model.generate(ONCE, new Few()).finished).tokens.length, 3);
  assert.equal((await failure(() => model.generate(ONCE, Object.create({ stop: 5 })))).code, "InvalidArgument");
});

test("seeds of several completions run on from 0 behind the last", async (context) => {
  const model = await demo(context);
  const options = { temperature: 1, maxTokens: 8 };
  const several = await model.generate(ONCE, { ...options, seed: Number.MAX_SAFE_INTEGER, n: 2 }).finished;
  for (const [index, seed] of [Number.MAX_SAFE_INTEGER, 0].entries()) {
    const alone = await model.generate(ONCE, { ...options, seed }).finished;
    assert.deepEqual(several.choices![index]!.tokens, alone.tokens);
  }
});

test("a text that cannot fit is refused before it is taken apart", async (context) => {
  const model = await demo(context);
  const began = performance.now();
  const error = await failure(() => model.generate("a".repeat(1 << 22), GREEDY).finished);
  assert.equal(error.code, "ContextFull");
  assert.ok(performance.now() - began < 1000);
});

test("a generation that nobody reads, and many of one signal, let a process end in silence", {
  timeout: 60_000,
}, async () => {
  const program = `
    const { load } = await import("ternlight");
    const model = await load((await import("ternlight/demo")).default, { threads: 1 });
    const { signal } = new AbortController();
    await model.generate("Once", { n: 12, maxTokens: 2, signal }).finished;
    model.generate("Once", { maxTokens: 400, ignoreEos: true });
  `;
  const child = spawn(process.execPath, ["--input-type=module", "--eval", program], {
    cwd: new URL("../../", import.meta.url),
    stdio: ["ignore", "inherit", "pipe"],
    timeout: 30_000,
  });
  let words = "";
  child.stderr.setEncoding("utf8").on("data", (text) => (words += text));
  const [code, killed] = await once(child, "exit");
  assert.deepEqual([code, killed, words], [0, null, ""]);
});

test("wrong ids are told by the name that the caller gave them", async (context) => {
  const model = await demo(context);
  const none = { expected: "a token at least", found: "none" };
  const beyond = { expected: "ids below 4096", found: "4096" };
  for (const [option, work, detail] of [
    ["ids", () => model.logits([]), none],
    ["ids", () => model.logits([1, 4096]), beyond],
    ["ids", () => model.promptLogprobs([]), none],
    ["ids", () => model.promptLogprobs([1, 4096]), beyond],
    ["texts[1]", () => model.embed(["a", [4096]]), beyond],
    ["texts[1]", () => model.embed(["a", []]), none],
    ["prompt", () => model.generate([4096]).finished, beyond],
  ] as [string, () => Promise<unknown>, object][]) {
    const error = await failure(work);
    assert.equal(error.code, "InvalidArgument");
    assert.deepEqual(error.detail, { option, ...detail }, option);
    assert.ok(error.message.replace(/^option /, "").startsWith(`${option}: `), error.message);
  }
  for (const [option, work] of [
    ["ids[1]", () => model.logits([1, -1])],
    ["ids[1]", () => model.detokenize([1, 0.5])],
    ["texts[1][0]", () => model.embed(["a", [-1]])],
    ["texts[1]", () => model.embed(["a", 5 as never])],
    ["prompt[2]", () => model.generate([1, 2, "3" as never]).finished],
  ] as [string, () => Promise<unknown>][]) {
    const { code, detail, message } = await failure(work);
    assert.deepEqual([code, detail.option], ["InvalidArgument", option], message);
    assert.match(message, /^\w+: [\w[\]]+ must be (an integer from 0|a text or a list of token ids)/);
  }
});
