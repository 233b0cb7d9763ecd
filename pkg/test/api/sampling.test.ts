/** Sampling options as a caller gives them; what each link does is tested in the engine. */

import assert from "node:assert/strict";
import { test } from "node:test";
import type { GenerateOptions, SamplingOptions } from "ternlight";
import { CONTINUATION, demo, failure, GREEDY, ONCE, pieces, reason } from "./support/model.ts";

/** Everything at once, in an order of its own. */
const ALL: SamplingOptions = {
  samplers: ["dry", "penalties", "temperature", "topNSigma", "topK", "typicalP", "topP", "minP", "xtc"],
  temperature: 1.4,
  dynamicTemperature: 0.6,
  dynamicExponent: 1.3,
  topK: 200,
  topP: 0.98,
  minP: 0.001,
  typicalP: 0.97,
  topNSigma: 4,
  xtcProbability: 0.3,
  xtcThreshold: 0.2,
  repetitionPenalty: 1.1,
  frequencyPenalty: 0.1,
  presencePenalty: 0.1,
  penaltyLastN: 64,
  dryMultiplier: 0.8,
  dryBreakers: ["\n", "."],
  logitBias: { 441: -2, 12: Number.NEGATIVE_INFINITY },
  bannedSequences: ["wife", [259, 976]],
  seed: 2 ** 40 + 7,
};

const EXPECTED = [
  259, 834, 568, 316, 307, 516, 1611, 328, 593, 612, 14, 392, 1254, 665, 1247, 1288, 292, 259, 1375, 14, 702, 846, 425,
  2456,
];
const MIROSTAT = [
  12, 259, 423, 411, 12, 270, 411, 307, 610, 500, 609, 605, 447, 83, 12, 299, 260, 896, 27, 270, 886, 316, 307, 361,
];

test("a seed gives the same tokens with every link on, on every build", async (context) => {
  const model = await demo(context);
  const run = async (options: GenerateOptions) =>
    (await model.generate(ONCE, { maxTokens: 24, ...options }).finished).tokens;
  const tokens = await run(ALL);
  assert.deepEqual(tokens, EXPECTED);
  const mirostat: SamplingOptions = { temperature: 1.2, mirostatTau: 4, mirostatEta: 0.2, seed: 9 };
  assert.deepEqual(await run(mirostat), MIROSTAT);
  const other = await demo(context, { flavour: "simd128" });
  assert.deepEqual((await other.generate(ONCE, { ...ALL, maxTokens: 24 }).finished).tokens, tokens);
});

test("what is banned does not come, and a bias brings what it favours", async (context) => {
  const model = await demo(context);
  const run = async (options: GenerateOptions) => model.generate(ONCE, { ...GREEDY, ...options }).finished;
  assert.match(CONTINUATION.text, / man who had a wife/);
  assert.doesNotMatch((await run({ bannedSequences: ["wife"] })).text, /wife/);
  assert.doesNotMatch((await run({ bannedSequences: ["a man", "wife"] })).text, /a man|wife/);
  const { tokens } = await run({ bannedSequences: [CONTINUATION.tokens.slice(0, 3)] });
  assert.deepEqual(tokens.slice(0, 2), CONTINUATION.tokens.slice(0, 2));
  assert.notEqual(tokens[2], CONTINUATION.tokens[2]);
  assert.deepEqual((await run({ logitBias: { 17: 1000 }, maxTokens: 2 })).tokens, [17, 17]);
  const forbidden = { logitBias: { [CONTINUATION.tokens[0]!]: Number.NEGATIVE_INFINITY } };
  assert.notEqual((await run(forbidden)).tokens[0], CONTINUATION.tokens[0]);
});

test("DRY ends what repeats, unless a breaker stands in it", async (context) => {
  const model = await demo(context);
  const prompt = "The cat sat on the mat. The cat sat on the mat. The cat sat on the";
  const run = async (options: GenerateOptions) =>
    (await model.generate(prompt, { temperature: 0, maxTokens: 1, ...options }).finished).tokens[0]!;
  const [mat] = (await model.tokenize(" mat", { addSpecial: false })) as [number];
  const bias = { logitBias: { [mat]: 15 } };
  assert.equal(await run(bias), mat);
  const dry = { ...bias, dryMultiplier: 5 };
  assert.notEqual(await run(dry), mat);
  assert.equal(await run({ ...dry, dryBreakers: [" the"] }), mat, "the last word breaks");
  assert.equal(await run({ ...dry, dryAllowedLength: 40 }), mat);
});

test("logprobs are those of the logits, for each token and in each piece", async (context) => {
  const model = await demo(context);
  const generation = model.generate(ONCE, { temperature: 1.3, seed: 3, maxTokens: 8, logprobs: 4 });
  const shown = await pieces(generation);
  const { tokens, logprobs = [] } = await generation.finished;
  assert.deepEqual(
    logprobs.map(({ token }) => token),
    tokens,
  );
  assert.deepEqual(
    shown.flatMap((piece) => piece.logprobs ?? []),
    logprobs,
  );
  const rows = await model.logits([...ONCE, ...tokens], { all: true });
  for (const [i, { token, logprob, top }] of logprobs.entries()) {
    const row = [...rows[ONCE.length - 1 + i]!];
    const total = Math.log(row.reduce((sum, logit) => sum + Math.exp(logit), 0));
    const best = row.map((_, id) => id).sort((a, b) => row[b]! - row[a]! || a - b);
    assert.ok(Math.abs(logprob - (row[token]! - total)) < 1e-5);
    assert.deepEqual(
      top.map(({ token }) => token),
      best.slice(0, 4),
    );
    for (const one of top) assert.ok(Math.abs(one.logprob - (row[one.token]! - total)) < 1e-5);
  }
  const alone = await model.generate(ONCE, { ...GREEDY, logprobs: 0 }).finished;
  assert.ok(alone.logprobs?.every(({ top, logprob }) => top.length === 0 && logprob <= 0));
  assert.equal((await model.generate(ONCE, GREEDY).finished).logprobs, undefined);
});

test("every wrong option is refused by name", async (context) => {
  const model = await demo(context);
  const wrong: [object, string][] = [
    [{ typicalP: 2 }, "typicalP"],
    [{ dryBase: 0.5 }, "dryBase"],
    [{ samplers: ["topK", "topQ"] }, "samplers"],
    [{ logitBias: { x: 1 } }, "logitBias"],
    [{ logitBias: { 5: Number.NaN } }, "logitBias"],
    [{ logitBias: { 99999: 1 } }, "logitBias"],
    [{ bannedSequences: [""] }, "bannedSequences"],
    [{ bannedSequences: [[99_999]] }, "bannedSequences"],
    [{ dryBreakers: "x" }, "dryBreakers"],
    [{ logprobs: 101 }, "logprobs"],
    [{ generationConfig: "mine" }, "generationConfig"],
  ];
  for (const [options, option] of wrong) {
    const { code, detail } = await failure(() => model.generate(ONCE, options as GenerateOptions).finished);
    assert.deepEqual([code, detail.option], ["InvalidArgument", option]);
  }
});

test("embeddings: one row a text, in any company, pooled and of length 1 unless asked otherwise", async (context) => {
  const model = await demo(context);
  const texts = ["A king had a daughter.", "The king had one daughter.", "Boil the potatoes in salted water."];
  const rows = await model.embed(texts);
  assert.deepEqual(
    rows.map((row) => row.length),
    texts.map(() => model.info.config.hidden),
  );
  const dot = (a: Float32Array, b: Float32Array) => a.reduce((sum, value, i) => sum + value * b[i]!, 0);
  for (const row of rows) assert.ok(Math.abs(dot(row, row) - 1) < 1e-5);
  assert.ok(dot(rows[0]!, rows[1]!) > dot(rows[0]!, rows[2]!), "what says nearly the same is nearer");
  assert.deepEqual(await model.embed([texts[1]!]), [rows[1]]);
  assert.deepEqual(await model.embed([await model.tokenize(texts[1]!)]), [rows[1]]);
  const [raw] = await model.embed([texts[0]!], { normalize: false });
  const [last] = await model.embed([texts[0]!], { pooling: "last", normalize: false });
  assert.ok(dot(raw!, raw!) > 2);
  assert.notDeepEqual(raw, last);
  // More than may wait at once.
  const many = await model.embed(Array.from({ length: 50 }, (_, i) => texts[i % 3]!));
  assert.deepEqual(
    many,
    Array.from({ length: 50 }, (_, i) => rows[i % 3]),
  );
  assert.deepEqual(await model.embed([]), []);
  const { detail } = await failure(() => model.embed(texts, { pooling: "max" as "mean" }));
  assert.equal(detail.option, "pooling");
  assert.equal((await failure(() => model.embed("x" as never))).code, "InvalidArgument");
  assert.equal(await reason(model.embed(texts, { signal: AbortSignal.abort("no") })), "no");
});
