import assert from "node:assert/strict";
import { test } from "node:test";
import { type Finished, load, type Model, type Piece, type Session } from "ternlight";
import { GenerationStream } from "../../src/api/generation.ts";
import { CONTINUATION, DEMO, demo, failure, GREEDY, ONCE, pieces, textOf, tokensOf } from "./support/model.ts";

test("pieces, `finished`, text() and a stream say the same", async (context) => {
  const model = await demo(context);
  const generation = model.generate("Once upon a time", GREEDY);
  const all = await pieces(generation);
  const finished = await generation.finished;
  assert.ok(all.length > 1);
  assert.equal(textOf(all), CONTINUATION.text);
  assert.deepEqual(tokensOf(all), CONTINUATION.tokens);
  assert.equal(finished.text, CONTINUATION.text);
  assert.deepEqual(finished.tokens, CONTINUATION.tokens);
  assert.deepEqual(finished.promptTokens, ONCE);
  assert.equal(finished.finishReason, "length");
  assert.equal(await model.generate(ONCE, GREEDY).text(), CONTINUATION.text);

  const reader = model.generate(ONCE, GREEDY).toReadableStream().getReader();
  const streamed = [];
  for (let next = await reader.read(); !next.done; next = await reader.read()) streamed.push(next.value);
  assert.equal(textOf(streamed), CONTINUATION.text);
});

test("a cancelled stream stops its generation", async (context) => {
  const model = await demo(context);
  const generation = model.generate(ONCE, { temperature: 0, ignoreEos: true });
  const reader = generation.toReadableStream().getReader();
  await reader.read();
  await reader.cancel();
  assert.equal((await generation.finished).finishReason, "stopped");
});

test("it is read once", async (context) => {
  const model = await demo(context);
  const generation = model.generate(ONCE, GREEDY);
  await generation.text();
  assert.equal((await failure(() => pieces(generation))).code, "InvalidArgument");
  assert.equal((await failure(() => generation.text())).code, "InvalidArgument");
  assert.equal((await failure(() => pieces(generation.toReadableStream()))).code, "InvalidArgument");
  assert.equal((await generation.finished).text, CONTINUATION.text, "`finished` may be awaited as often as one likes");
});

test("the pieces wait for who reads late", async (context) => {
  const model = await demo(context);
  const generation = model.generate(ONCE, GREEDY);
  await generation.finished;
  assert.equal(textOf(await pieces(generation)), CONTINUATION.text);
});

test("the same seed gives the same tokens, whatever runs beside it", async (context) => {
  const model = await demo(context);
  const sample = (seed: number) => model.generate(ONCE, { seed, temperature: 1, maxTokens: 24 }).finished;
  const alone = await sample(5);
  const [again, other, big] = await Promise.all([sample(5), sample(6), sample(2 ** 53 - 1)]);
  assert.deepEqual(again.tokens, alone.tokens);
  assert.notDeepEqual(other.tokens, alone.tokens);
  assert.deepEqual((await sample(2 ** 53 - 1)).tokens, big.tokens);
  const unseeded = await Promise.all([1, 2, 3].map(() => model.generate(ONCE, { maxTokens: 24 }).finished));
  assert.ok(new Set(unseeded.map(({ text }) => text)).size > 1, "without a seed it is another one each time");
});

test("sampling options that leave one token are greedy", async (context) => {
  const model = await demo(context);
  for (const option of [{ topK: 1 }, { topP: 0 }, { minP: 1 }]) {
    const options = { temperature: 1.5, topP: 1, topK: 0, maxTokens: 12, ...option };
    assert.deepEqual(
      (await model.generate(ONCE, options).finished).tokens,
      CONTINUATION.tokens,
      JSON.stringify(option),
    );
  }
  const penalised = await model.generate(ONCE, { ...GREEDY, maxTokens: 40, repetitionPenalty: 1.5 }).finished;
  const plain = await model.generate(ONCE, { ...GREEDY, maxTokens: 40 }).finished;
  const different = (tokens: readonly number[]) => new Set(tokens).size;
  assert.ok(different(penalised.tokens) > different(plain.tokens));
});

test("stop texts may span pieces, and no part of them is shown", async (context) => {
  const model = await demo(context);
  // The tokens are " there", " lived", " a", " man" …: the first stop begins and ends within tokens.
  for (const [stop, text] of [
    [["ved a ma"], " there li"],
    [" there", ""],
    [["nowhere", " wife", " man who"], " there lived a"],
    [["a wife."], " there lived a man who had a wife and "],
  ] as const) {
    const generation = model.generate(ONCE, { ...GREEDY, stop });
    const all = await pieces(generation);
    const finished = await generation.finished;
    assert.equal(textOf(all), text);
    assert.equal(finished.text, text);
    assert.equal(finished.finishReason, "stop");
  }
  // What only looks like the beginning of one is shown after all.
  const unmet = await model.generate(ONCE, { ...GREEDY, stop: "wife.\nNo" }).finished;
  assert.equal(unmet.text, CONTINUATION.text);
  assert.equal(unmet.finishReason, "length");
});

test("the model's own end ends it, unless it is ignored", async (context) => {
  const model = await demo(context);
  // Behind an ended text another begins; some of these end within a few hundred tokens.
  const ended = await Promise.all(
    [1, 2, 3, 4, 5, 6, 7, 8].map((seed) => model.generate('"The end."', { seed, temperature: 1.2 }).finished),
  );
  const stopped = ended.filter(({ finishReason }) => finishReason === "stop");
  assert.ok(stopped.length > 0, "none of them ended");
  for (const { tokens, text } of stopped) {
    assert.ok(!tokens.includes(0), "the token that ended it is not part of it");
    assert.equal(text, await model.detokenize(tokens));
  }
});

test("maxTokens 0 computes the prompt and gives nothing", async (context) => {
  const model = await demo(context);
  const { text, tokens, finishReason, timings } = await model.generate(ONCE, { maxTokens: 0 }).finished;
  assert.deepEqual([text, tokens, finishReason, timings.promptN, timings.predictedN], ["", [], "length", 4, 0]);
});

test("a full context ends an answer, and refuses a prompt", async (context) => {
  const model = await demo(context, { contextLength: 32 });
  assert.equal(model.info.contextLength, 32);
  const { tokens, finishReason } = await model.generate(ONCE, { temperature: 0, ignoreEos: true }).finished;
  assert.equal(finishReason, "length");
  assert.ok(tokens.length >= 28 && tokens.length <= 29, `${tokens.length} tokens`);
  const long = Array.from({ length: 33 }, () => 1);
  const { code, detail } = await failure(() => model.generate(long).finished);
  assert.equal(code, "ContextFull");
  assert.equal(detail.option, "contextLength");
  assert.equal((await failure(() => model.logits(long))).code, "ContextFull");
});

test("logits: of the last position or of all", async (context) => {
  const model = await demo(context);
  const all = await model.logits(ONCE, { all: true });
  const last = await model.logits(ONCE);
  assert.deepEqual([all.length, last.length], [4, 1]);
  for (const row of all) {
    assert.ok(row instanceof Float32Array);
    assert.equal(row.length, model.info.vocab);
  }
  assert.deepEqual(last[0], all[3]);
  for (const [i, row] of all.entries()) assert.deepEqual((await model.logits(ONCE.slice(0, i + 1)))[0], row);
  const best = last[0]!.indexOf(Math.max(...last[0]!));
  assert.equal(best, CONTINUATION.tokens[0]);
});

test("textStream() is the text's bytes, as a Response takes them", async (context) => {
  const model = await demo(context);
  const response = new Response(model.generate(ONCE, GREEDY).textStream());
  assert.equal(await response.text(), CONTINUATION.text);
  const chunks = [];
  for await (const chunk of model.generate(ONCE, GREEDY).textStream()) chunks.push(chunk);
  assert.ok(chunks.length > 1 && chunks.every((chunk) => chunk instanceof Uint8Array && chunk.length > 0));
  // Of several completions it is the first.
  const several = { temperature: 1, seed: 4, n: 3, maxTokens: 8 } as const;
  const { choices } = await model.generate(ONCE, several).finished;
  assert.equal(await new Response(model.generate(ONCE, several).textStream()).text(), choices![0]!.text);
  const endless = model.generate(ONCE, { temperature: 0, ignoreEos: true });
  const reader = endless.textStream().getReader();
  await reader.read();
  await reader.cancel();
  assert.equal((await endless.finished).finishReason, "stopped");
});

test("the stop text that ended an answer is named", async (context) => {
  const model = await demo(context);
  const { stopText, finishReason } = await model.generate(ONCE, { ...GREEDY, stop: ["nowhere", " wife", "man who"] })
    .finished;
  assert.deepEqual([stopText, finishReason], ["man who", "stop"]);
  assert.ok(!("stopText" in (await model.generate(ONCE, { ...GREEDY, stop: "nowhere" }).finished)));
});

test("joined pieces are all that has come, at most one in a frame", async (context) => {
  const model = await demo(context);
  const whole = await model.generate(ONCE, { temperature: 0, maxTokens: 60, logprobs: 1 }).finished;
  const joined = model.generate(ONCE, { temperature: 0, maxTokens: 60, logprobs: 1, pieces: "joined" });
  await joined.finished;
  const one = await pieces(joined);
  assert.deepEqual([one.length, one[0]?.text, one[0]?.tokens], [1, whole.text, whole.tokens]);
  assert.deepEqual(one[0]?.logprobs, whole.logprobs);

  // A page hands in its frames; here they are timers.
  let frames = 0;
  const frame = () => new Promise<void>((resolve) => setTimeout(() => resolve(void frames++), 20));
  const outcome = Promise.withResolvers<Finished>();
  const read: number[] = [];
  let push: (pieces: Piece[]) => void = () => {};
  const stream = new GenerationStream((give) => {
    push = give;
    return { finished: outcome.promise, stop() {}, read: (count) => read.push(count) };
  }, frame);
  const piece = (token: number, index = 0) => ({ text: `${token} `, tokens: [token], index });
  const seen: [frame: number, text: string][] = [];
  const reading = (async () => {
    for await (const { text } of stream) seen.push([frames, text]);
  })();
  push([piece(1)]);
  for (let token = 2; token <= 100; token++) {
    await new Promise((resolve) => setTimeout(resolve, 1));
    push([piece(token)]);
  }
  push([piece(101, 1), piece(102, 1), piece(103)]);
  outcome.resolve(whole);
  await reading;
  assert.deepEqual(seen[0], [0, "1 "], "the first piece does not wait");
  assert.equal(new Set(seen.map(([frame]) => frame)).size, seen.length, "no two pieces in one frame");
  assert.ok(seen.length < 50, `${seen.length} pieces`);
  assert.deepEqual(
    seen.slice(-2).map(([, text]) => text),
    ["101 102 ", "103 "],
    "completions are not mixed",
  );
  assert.equal(seen.map(([, text]) => text).join(""), Array.from({ length: 103 }, (_, i) => `${i + 1} `).join(""));
  assert.ok(read.length > 0 && read.every((count) => count <= 103), "all that is joined counts as read");
});

test("await gives the generation itself; its text is behind text()", async (context) => {
  const model = await demo(context);
  const awaited = await model.generate(ONCE, GREEDY);
  assert.equal(await awaited.text(), CONTINUATION.text);
});

test("a model and a session are disposed of", async () => {
  const disposed = { model: null as Model | null };
  {
    await using model = await load(DEMO, { threads: 1 });
    disposed.model = model;
    let inner: Session;
    {
      await using session = model.session();
      await session.generate(ONCE, GREEDY).finished;
      inner = session;
    }
    assert.equal((await failure(() => inner.generate(ONCE))).code, "Closed");
  }
  assert.equal((await failure(() => disposed.model!.tokenize("x"))).code, "Closed");
});
