import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "ternlight";
import { begun, CONTINUATION, DEMO, demo, failure, GREEDY, ONCE, reason } from "./support/model.ts";

const ENDLESS = { temperature: 0, ignoreEos: true };

test("a load whose signal is aborted already", async () => {
  const why = new Error("changed my mind");
  assert.equal(await reason(load(DEMO, { signal: AbortSignal.abort(why) })), why);
});

test("a load under way, at every phase that tells of itself", async () => {
  for (const phase of ["header", "download", "pack"]) {
    const controller = new AbortController();
    const why = { phase };
    const seen: string[] = [];
    const onProgress = (progress: { phase: string }) => {
      seen.push(progress.phase);
      if (progress.phase === phase) controller.abort(why);
    };
    assert.equal(await reason(load(DEMO, { threads: 1, signal: controller.signal, onProgress })), why);
    assert.equal(seen.at(-1), phase, "nothing is told after the abort");
  }
});

test("a load with a time limit", async () => {
  const error = await reason(load(DEMO, { signal: AbortSignal.timeout(1) }));
  assert.equal((error as Error).name, "TimeoutError");
});

test("a generation whose signal is aborted already", async (context) => {
  const model = await demo(context);
  const why = new Error("no");
  const generation = model.generate(ONCE, { signal: AbortSignal.abort(why) });
  assert.equal(await reason(generation.finished), why);
  assert.equal(await reason(begun(generation)), why);
});

test("a generation under way rejects iteration and `finished` with the reason, and the model goes on", async (context) => {
  const model = await demo(context);
  const controller = new AbortController();
  const why = new Error("enough");
  const generation = model.generate(ONCE, { ...ENDLESS, signal: controller.signal });
  const iterator = await begun(generation);
  controller.abort(why);
  assert.equal(await reason(iterator.next()), why);
  assert.equal(await reason(generation.finished), why);
  assert.deepEqual((await model.generate(ONCE, GREEDY).finished).tokens, CONTINUATION.tokens);
  // A signal that is aborted after the end changes nothing.
  const late = new AbortController();
  const done = model.generate(ONCE, { ...GREEDY, signal: late.signal });
  await done.finished;
  late.abort();
  assert.equal((await done.finished).finishReason, "length");
});

test("an abort in the loop's body lets no further piece through", async (context) => {
  const model = await demo(context);
  const controller = new AbortController();
  const why = new Error("enough");
  let seen = 0;
  const reading = async () => {
    for await (const _ of model.generate(ONCE, { ...ENDLESS, signal: controller.signal })) {
      // By now more have gathered.
      await new Promise((resolve) => setTimeout(resolve, 30));
      seen++;
      controller.abort(why);
    }
  };
  assert.equal(await reason(reading()), why);
  assert.equal(seen, 1);
});

test("who only iterates leaves no unhandled rejection behind", async (context) => {
  const unhandled: unknown[] = [];
  const listener = (error: unknown) => unhandled.push(error);
  process.on("unhandledRejection", listener);
  context.after(() => process.off("unhandledRejection", listener));
  const model = await demo(context);
  const controller = new AbortController();
  const generation = model.generate(ONCE, { ...ENDLESS, signal: controller.signal });
  const iterator = await begun(generation);
  controller.abort();
  await reason(iterator.next());
  await new Promise((resolve) => setTimeout(resolve, 50));
  assert.deepEqual(unhandled, []);
});

test("logits and perplexity take a signal too", async (context) => {
  const model = await demo(context);
  const why = new Error("no");
  assert.equal(await reason(model.logits(ONCE, { signal: AbortSignal.abort(why) })), why);
  const controller = new AbortController();
  const long = model.perplexity("Once upon a time there was a king. ".repeat(2000), { signal: controller.signal });
  setTimeout(() => controller.abort(why), 50);
  assert.equal(await reason(long), why);
  assert.deepEqual((await model.generate(ONCE, GREEDY).finished).tokens, CONTINUATION.tokens);
});

test("stop() keeps the text so far and ends normally", async (context) => {
  const model = await demo(context);
  const generation = model.generate(ONCE, ENDLESS);
  const iterator = await begun(generation);
  generation.stop();
  generation.stop();
  for (let next = await iterator.next(); !next.done; next = await iterator.next());
  const { text, tokens, finishReason } = await generation.finished;
  assert.equal(finishReason, "stopped");
  assert.ok(tokens.length > 0 && tokens.length < 400, `${tokens.length} tokens`);
  assert.equal(text, await model.detokenize(tokens));
  assert.ok(text.startsWith(" there"));
});

test("`break` stops it as well", async (context) => {
  const model = await demo(context);
  const generation = model.generate(ONCE, ENDLESS);
  for await (const { text } of generation) {
    assert.equal(text, " there");
    break;
  }
  const { finishReason, tokens } = await generation.finished;
  assert.equal(finishReason, "stopped");
  assert.ok(tokens.length < 400);
});

test("close() ends what runs, and afterwards everything says Closed", async (context) => {
  const model = await demo(context);
  const session = model.session();
  const generation = model.generate(ONCE, ENDLESS);
  const iterator = await begun(generation);
  const waiting = model.logits(ONCE);
  await model.close();
  await model.close();
  const closed = [
    () => iterator.next(),
    () => generation.finished,
    () => waiting,
    () => model.generate(ONCE).finished,
    () => model.logits(ONCE),
    () => model.tokenize("a"),
    () => model.detokenize([1]),
    () => model.perplexity("a b c"),
    () => model.session(),
    () => session.generate(ONCE).finished,
  ];
  for (const call of closed) assert.equal((await failure(call)).code, "Closed", String(call));
  await session.close();
});
