import assert from "node:assert/strict";
import { test } from "node:test";
import { begun, demo, failure, GREEDY, ONCE } from "./support/model.ts";

test("a session goes on from what it holds, and computes only what is new", async (context) => {
  const model = await demo(context);
  const session = model.session();
  assert.deepEqual(session.tokens, []);
  const first = await session.generate("Once upon a time", GREEDY).finished;
  assert.deepEqual(session.tokens, [...ONCE, ...first.tokens]);
  const second = await session.generate(" The king", GREEDY).finished;
  assert.equal(second.promptTokens.length, 2);
  assert.equal(second.timings.promptN, 2);
  assert.deepEqual(session.tokens, [...ONCE, ...first.tokens, ...second.promptTokens, ...second.tokens]);
  // As if everything had been one prompt.
  const fresh = await model.generate([...ONCE, ...first.tokens, ...second.promptTokens], GREEDY).finished;
  assert.deepEqual(second.tokens, fresh.tokens);
  // Without new tokens it goes on where it ended.
  const rest = await model.generate(ONCE, { temperature: 0, maxTokens: 20 }).finished;
  const other = model.session();
  await other.generate(ONCE, { temperature: 0, maxTokens: 8 }).finished;
  const more = await other.generate([], { temperature: 0, maxTokens: 12 }).finished;
  assert.deepEqual(more.tokens, rest.tokens.slice(8));
});

test("sessions side by side give what each gives alone", async (context) => {
  const model = await demo(context);
  const prompts = ["Once upon a time", "The king had three sons", '"Good morning," said the old fox.'];
  const options = { temperature: 0.8, seed: 3, maxTokens: 30 };
  const alone = [];
  for (const prompt of prompts) alone.push((await model.generate(prompt, options).finished).tokens);
  const sessions = prompts.map(() => model.session());
  const together = await Promise.all(sessions.map((session, i) => session.generate(prompts[i]!, options).finished));
  assert.deepEqual(
    together.map(({ tokens }) => tokens),
    alone,
  );
});

test("a session takes one generation at a time", async (context) => {
  const model = await demo(context);
  const session = model.session();
  const running = session.generate(ONCE, { temperature: 0, ignoreEos: true });
  await begun(running);
  const { code, message } = await failure(() => session.generate([1]).finished);
  assert.equal(code, "InvalidArgument");
  assert.match(message, /busy/);
  running.stop();
  await running.finished;
  await session.generate([1], GREEDY).finished;
});

test("what was stopped stays in the session, as far as it was told", async (context) => {
  const model = await demo(context);
  const session = model.session();
  const generation = session.generate(ONCE, { temperature: 0, ignoreEos: true });
  await begun(generation);
  generation.stop();
  const { tokens } = await generation.finished;
  assert.deepEqual(session.tokens, [...ONCE, ...tokens]);
  const next = await session.generate([300, 301], GREEDY).finished;
  const fresh = await model.generate([...ONCE, ...tokens, 300, 301], GREEDY).finished;
  assert.deepEqual(next.tokens, fresh.tokens);

  const plain = await model.generate([...session.tokens, ...ONCE], GREEDY).finished;
  const stopped = await session.generate(ONCE, { temperature: 0, stop: plain.text.slice(9, 14) }).finished;
  assert.equal(stopped.finishReason, "stop");
  assert.deepEqual(session.tokens.slice(-stopped.tokens.length), stopped.tokens);
});

test("an aborted generation leaves a session that can go on", async (context) => {
  const model = await demo(context);
  const session = model.session();
  await session.generate(ONCE, GREEDY).finished;
  const controller = new AbortController();
  const generation = session.generate([300], { temperature: 0, ignoreEos: true, signal: controller.signal });
  await begun(generation);
  controller.abort();
  const next = await session.generate([301], GREEDY).finished;
  // Whatever it holds by then, it says so, and continues that.
  const held = session.tokens.slice(0, -next.tokens.length);
  assert.equal(held.at(-1), 301);
  assert.deepEqual((await model.generate(held, GREEDY).finished).tokens, next.tokens);
});

test("a prompt that does not fit changes nothing", async (context) => {
  const model = await demo(context, { contextLength: 32 });
  const session = model.session();
  const first = await session.generate(ONCE, GREEDY).finished;
  const long = Array.from({ length: 30 }, () => 1);
  assert.equal((await failure(() => session.generate(long).finished)).code, "ContextFull");
  assert.deepEqual(session.tokens, [...ONCE, ...first.tokens]);
  await session.generate([300], { ...GREEDY, maxTokens: 2 }).finished;
});

test("a closed session says so; the others and the model go on", async (context) => {
  const model = await demo(context);
  const [one, two] = [model.session(), model.session()];
  await one.generate(ONCE, GREEDY).finished;
  await one.close();
  await one.close();
  assert.equal((await failure(() => one.generate(ONCE))).code, "Closed");
  await two.generate(ONCE, GREEDY).finished;
});

test("sessions that were closed give their room back", async (context) => {
  const model = await demo(context, { contextLength: 64 });
  for (let round = 0; round < 40; round++) {
    const session = model.session();
    await session.generate(ONCE, { temperature: 0, ignoreEos: true }).finished;
    await session.close();
  }
});
