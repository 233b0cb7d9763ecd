/** Formats made to stop or to break the library: the one that asks is refused, and the others go on. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { type TestContext, test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { Worker } from "node:worker_threads";
import { Compiler, READY, type Request, vocabularyOf } from "../../src/constrain/compiler.ts";
import { Constrainer } from "../../src/constrain/constraint.ts";
import type { Opening } from "../../src/constrain/opening.ts";
import type { FormatSpec } from "../../src/options/response_format.ts";
import { owned } from "../../src/platform/node_ports.ts";
import type { WorkerPort } from "../../src/rpc/port.ts";
import { Tokenizer } from "../../src/text/tokenizer.ts";
import { demo as model } from "../api/support/model.ts";

const read = (path: string) => readFileSync(new URL(`../../${path}`, import.meta.url));
const demo = (name: string) => JSON.parse(read(`models/ternlight-demo/${name}`).toString());
const tokenizer = new Tokenizer(demo("tokenizer.json"), demo("tokenizer_config.json"));
const VOCAB = 4096;
const ends = tokenizer.ends.map(({ id }) => id);
const constrain = new WebAssembly.Module(read("dist/constrain.wasm"));

const format = (kind: FormatSpec["kind"], source: string): FormatSpec => ({ kind, source, option: "format" });
const chain = (count: number) => {
  const rules = Array.from({ length: count }, (_, i) => `r${i}: r${i + 1}`);
  return format("grammar", `start: r0\n${rules.join("\n")}\nr${count}: "a"`);
};
const WORDS = format("regex", "[a-z ]*");
/** It would compile for minutes. */
const SLOW = format("regex", "a*b?c*".repeat(20_000));

function constrainer(context: TestContext, options: { workers?: boolean } = {}) {
  const workers: Worker[] = [];
  const spawn = () => {
    workers.push(new Worker(new URL("../../dist/node-worker.js", import.meta.url)));
    return owned(workers.at(-1) as Worker);
  };
  const compiled = () => Promise.resolve(constrain);
  const made = new Constrainer({
    tokenizer,
    vocab: VOCAB,
    ends,
    compiled,
    spawn: options.workers === false ? null : spawn,
  });
  context.after(() => made.end());
  return { made, workers };
}

const allowed = async (constraint: { mask(logits: Float32Array): Promise<boolean> }) => {
  const logits = new Float32Array(VOCAB);
  await constraint.mask(logits);
  return logits.reduce((sum, logit) => sum + (logit === 0 ? 1 : 0), 0);
};

const down = <T>(calls: number, work: () => T): T => (calls === 0 ? work() : down(calls - 1, work));

function callsThatFit(): number {
  let calls = 0;
  const call = () => {
    calls++;
    call();
  };
  assert.throws(call, RangeError);
  return calls;
}

test("an instance that traps is left alone, by its finalisers too", async () => {
  const compiler = new Compiler({ constrain, vocabulary: vocabularyOf(tokenizer, VOCAB, ends) });
  assert.ok("bits" in compiler.run({ id: 1, format: WORDS, tokens: [] })!);
  // With less and less stack, until it ends in the middle. What the instance had on its own stack then stays there, and after a few
  // of these every call of it traps.
  const calls = callsThatFit();
  let traps = 0;
  for (let part = 0.5; part < 0.99 && traps < 20; part += 0.002) {
    try {
      const state = down(Math.floor(calls * part), () => compiler.run({ id: 2, format: chain(240), tokens: [] }));
      if (state && "trap" in state) traps++;
    } catch (error) {
      assert.ok(error instanceof RangeError);
    }
  }
  assert.ok(traps > 0);
  const uncaught: unknown[] = [];
  const onUncaught = (error: unknown) => uncaught.push(error);
  process.on("uncaughtException", onUncaught);
  setFlagsFromString("--expose-gc");
  const gc = runInNewContext("gc") as () => void;
  for (let round = 0; round < 5; round++) {
    gc();
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  process.off("uncaughtException", onUncaught);
  assert.deepEqual(uncaught, []);
  assert.ok("trap" in compiler.run({ id: 3, format: WORDS, tokens: [] })!);
});

test("a grammar of 20,000 rules is refused at once", async (context) => {
  const { made } = constrainer(context);
  const begun = performance.now();
  await assert.rejects(made.start(chain(20_000), true), { code: "BadConstraint", message: /250 deep/ });
  assert.ok(performance.now() - begun < 2000);
});

test("constraints beside one whose worker dies go on where they are", async (context) => {
  const { made, workers } = constrainer(context);
  // More constraints than there are workers: some share theirs with the one that is being compiled.
  const others = await Promise.all(Array.from({ length: 5 }, () => made.start(format("regex", "abc|xyz"), true)));
  assert.equal(workers.length, 4);
  const [a] = tokenizer.encode("a", { addSpecial: false });
  for (const other of others) other.accept(a!);
  const expected = await Promise.all(others.map(allowed));
  const refused = assert.rejects(made.start(SLOW, true), { code: "BadConstraint", message: /more than the library/ });
  await Promise.all([...workers].map((worker) => worker.terminate()));
  await refused;
  assert.deepEqual(await Promise.all(others.map(allowed)), expected);
  const [b] = tokenizer.encode("b", { addSpecial: false });
  for (const other of others) other.accept(b!);
  for (const other of others) assert.equal(await allowed(other), 1);
});

test("an instance that traps while it forgets a format takes no other with it", async () => {
  /** The library itself, which traps when it is to forget something, as it does with too little stack. */
  const spawn = () => {
    let compiler: Compiler | null = null;
    const answer = (message: unknown) => {
      if (!compiler) {
        compiler = new Compiler(message as Opening);
        return READY;
      }
      const request = message as Request;
      return "free" in request ? { id: request.id, trap: "unreachable" } : compiler.run(request);
    };
    const port: WorkerPort = {
      onmessage: null,
      onerror: null,
      terminate() {},
      post: (message) => void setTimeout(() => port.onmessage?.(answer(message)), 1),
    };
    return port;
  };
  const made = new Constrainer({ tokenizer, vocab: VOCAB, ends, compiled: () => Promise.resolve(constrain), spawn });
  const all = await Promise.all(Array.from({ length: 8 }, () => made.start(format("regex", "abc|xyz"), true)));
  const [a] = tokenizer.encode("a", { addSpecial: false });
  for (const one of all) one.accept(a!);
  for (const one of all.slice(4)) one.free();
  const expected = await Promise.all(all.slice(0, 4).map(allowed));
  assert.ok(expected.every((count) => count === expected[0] && count > 0));
  made.end();
});

test("a format that compiles for too long is given up, and keeps nobody waiting", async (context) => {
  const { made } = constrainer(context);
  const other = await made.start(WORDS, true);
  const slow = assert.rejects(made.start(SLOW, true), { code: "BadConstraint" });
  const begun = performance.now();
  let gap = 0;
  for (let last = begun, next = 0; last - begun < 3000; last = next) {
    other.accept(tokenizer.encode("a", { addSpecial: false })[0]!);
    await allowed(other);
    await new Promise((resolve) => setTimeout(resolve, 1));
    next = performance.now();
    gap = Math.max(gap, next - last);
  }
  assert.ok(gap < 1000, `${gap} ms`);
  await slow;
  assert.ok(performance.now() - begun < 10_000);
  assert.ok((await allowed(other)) > 0);
});

test("without workers long formats are refused before they are compiled", async (context) => {
  const { made } = constrainer(context, { workers: false });
  const begun = performance.now();
  await assert.rejects(made.start(SLOW, true), { code: "BadConstraint", message: /no workers/ });
  assert.ok(performance.now() - begun < 100);
  assert.ok((await allowed(await made.start(WORDS, true))) > 0);
});

test("a large schema with an error stops no answer", async (context) => {
  const engine = await model(context);
  const properties = Object.fromEntries(
    Array.from({ length: 5000 }, (_, i) => [`p${i}`, { type: "object", properties: { a: { pattern: `^x${i}` } } }]),
  );
  const schema = { properties: { ...properties, z: { items: { not: {} } } } };
  let [last, gap] = [Number.NaN, 0];
  const plain = engine.generate("Once upon a time", { maxTokens: 400, ignoreEos: true, onContextFull: "shift" });
  const refused = assert.rejects(
    engine.generate("Once", { responseFormat: { type: "json_schema", schema }, maxTokens: 4 }).finished,
    { code: "BadConstraint" },
  );
  for await (const _ of plain) {
    const now = performance.now();
    if (now - last > gap) gap = now - last;
    last = now;
  }
  await refused;
  assert.ok(gap < 1500, `${gap} ms`);
});
