/** The health of a model: what is seen of damage, loops, NaNs and its cache, and that watching changes no bit. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { type Health, load } from "ternlight";
import { synthetic } from "../../src/bench/synthetic.ts";
import { json, ternlight } from "../cli/support/ternlight.ts";
import { DEMO, demo, failure, ONCE } from "./support/model.ts";

const always = { health: { share: 1 } } as const;
const states = ({ signals }: Health) =>
  Object.fromEntries(Object.entries(signals).map(([name, { state }]) => [name, state]));

test("a model that nobody watches tells what is known anyway", async (context) => {
  const model = await demo(context);
  const before = await model.health();
  assert.deepEqual([before.watched, before.signals.repetition.state], [false, "unknown"]);
  const { repetitionScore } = await model.generate(ONCE, { maxTokens: 64, temperature: 0 }).finished;
  const { watched, signals } = await model.health();
  assert.equal(watched, false);
  assert.equal(signals.repetition.value, repetitionScore);
  assert.equal(signals.nonFinite.state, "ok");
  for (const name of ["weights", "kvEntropy", "zeroChannels", "int8Saturation", "perplexity"] as const)
    assert.deepEqual([signals[name].state, signals[name].value], ["unknown", null], name);
  for (const options of [{ full: true }, { damage: { codes: 1 } }, { watch: true }])
    assert.match((await failure(() => model.health(options))).message, /needs the load option health/);
  assert.equal((await failure(() => model.health({ damage: { codes: -1 } }))).code, "InvalidArgument");
});

test("watching every step changes no token and no logit", async (context) => {
  const [plain, watched] = [await demo(context), await demo(context, always)];
  const options = { maxTokens: 48, seed: 3, temperature: 0.9, logprobs: 2 };
  const answer = async (model: typeof plain) =>
    Promise.all([1, 2, 3].map((seed) => model.generate(ONCE, { ...options, seed }).finished));
  const [one, other] = [await answer(plain), await answer(watched)];
  for (const [i, { tokens, logprobs }] of one.entries()) {
    assert.deepEqual(other[i]!.tokens, tokens);
    assert.deepEqual(other[i]!.logprobs, logprobs);
  }
  const found = await watched.health({ full: true });
  assert.equal(found.watched, true);
  assert.deepEqual(new Set(Object.values(states(found)).filter((state) => state !== "unknown")), new Set(["ok"]));
  const { perplexity, kvEntropy, weights } = found.signals;
  assert.ok(
    perplexity.from.tokens! > 100 && perplexity.value! > 1 && perplexity.value! < 100,
    String(perplexity.value),
  );
  assert.ok(kvEntropy.layers!.length === watched.info.config.layers && !kvEntropy.layers!.includes(null));
  assert.ok(weights.from.rounds! >= 1 && weights.value === 0);
});

test("a greedy answer's logits are seen where a choice needs the largest alone", async (context) => {
  const file = synthetic({ shape: "fairy,layers=1,vocab=4096", type: "tq2_0", embedding: "q6_k" });
  const options = { maxTokens: 20, temperature: 0 };
  const [plain, watched] = await Promise.all([load(file), load(file, always)]);
  context.after(() => Promise.all([plain.close(), watched.close()]));
  const { tokens } = await plain.generate([1, 2, 3], options).finished;
  assert.deepEqual((await watched.generate([1, 2, 3], options).finished).tokens, tokens);
  const { nonFinite, perplexity } = (await watched.health()).signals;
  assert.deepEqual([nonFinite.state, perplexity.from.tokens], ["ok", 20]);
});

test("watching rests and goes on", async (context) => {
  const model = await demo(context, always);
  const write = async () => {
    await model.generate(ONCE, { maxTokens: 20, seed: 2, temperature: 0 }).finished;
    const { watched, signals } = await model.health();
    return [watched, signals.perplexity.from.tokens];
  };
  assert.deepEqual(await write(), [true, 20]);
  assert.equal((await model.health({ watch: false })).watched, false);
  assert.deepEqual(await write(), [false, 20]);
  await model.health({ watch: false });
  assert.equal((await model.health({ watch: true })).watched, true);
  assert.deepEqual(await write(), [true, 40]);
});

test("watching rests while a request is being computed", async (context) => {
  const [plain, model] = [await demo(context), await demo(context, always)];
  const options = { maxTokens: 60, seed: 4, temperature: 0.8 };
  const { tokens } = await plain.generate(ONCE, options).finished;
  const answer = model.generate(ONCE, options);
  let on = true;
  for await (const _ of answer) {
    on = !on;
    await model.health({ watch: on });
  }
  assert.deepEqual((await answer.finished).tokens, tokens);
  const { state, signals } = await model.health({ watch: true, full: true });
  assert.ok(state === "ok" && signals.perplexity.from.tokens! <= 60, state);
});

test("the perplexity is that of the tokens that were written", async (context) => {
  const model = await demo(context, always);
  const { logprobs } = await model.generate(ONCE, { maxTokens: 40, seed: 2, logprobs: 0 }).finished;
  const { perplexity } = (await model.health()).signals;
  assert.equal(perplexity.from.tokens, 40);
  const nll = -logprobs!.reduce((sum, { logprob }) => sum + logprob, 0) / logprobs!.length;
  assert.ok(Math.abs(perplexity.value! / Math.exp(nll) - 1) < 1e-4, `${perplexity.value}, not ${Math.exp(nll)}`);
});

test("what a model wrote long ago does not hide how it writes now", async (context) => {
  const model = await demo(context, { ...always, maxSequences: 8 });
  const write = async (answers: number, temperature: number) => {
    const options = { maxTokens: 128, ignoreEos: true, temperature, topK: 0, topP: 1, minP: 0, logprobs: 0 };
    const seeds = Array.from({ length: answers }, (_, seed) => seed);
    const all = await Promise.all(seeds.map((seed) => model.generate(ONCE, { ...options, seed }).finished));
    const logprobs = all.flatMap((one) => one.logprobs!.map(({ logprob }) => logprob));
    return -logprobs.reduce((sum, logprob) => sum + logprob, 0) / logprobs.length;
  };
  const [well, ill] = [await write(8, 0.1), await write(12, 100)];
  assert.ok(ill - well > 2, `${well} and ${ill}`);
  const { perplexity } = (await model.health()).signals;
  const far = (ill - Math.log(perplexity.value!)) / (ill - well);
  // Of all tokens since the load, those of the first part were 0.4.
  assert.ok(Math.abs(far) < 0.15, `${perplexity.value}, not ${Math.exp(ill)}; before it ${Math.exp(well)}`);
  const { tokens } = perplexity.from;
  assert.ok(Number.isInteger(tokens) && tokens! >= 256 && tokens! < 512, String(tokens));
});

test("as many tiles are seen as codes were changed", async (context) => {
  const model = await demo(context, { health: true });
  for (const codes of [1, 6, 40]) {
    const other = await demo(context, { health: true });
    const { signals } = await other.health({ full: true, damage: { codes } });
    assert.equal(signals.weights.from.changed, codes);
    assert.equal(signals.weights.places!.length, codes);
    assert.ok(signals.weights.value! > 0);
    await other.close();
  }
  const { state, signals } = await model.health({ full: true, damage: { codes: 40 } });
  assert.deepEqual([state, signals.weights.state], ["alert", "alert"]);
});

test("changed weights are found in the background", async (context) => {
  const model = await demo(context, { health: { share: 0.5 } });
  await model.health({ damage: { codes: 3 } });
  for (const end = Date.now() + 20_000; ; await new Promise((resolve) => setTimeout(resolve, 200))) {
    const { weights } = (await model.health()).signals;
    if (weights.from.changed === 3) break;
    assert.ok(Date.now() < end, JSON.stringify(weights));
  }
});

test("a NaN is counted before the answer is refused", async (context) => {
  const model = await demo(context, always);
  const before = (await model.health({ damage: { nan: true } })).signals.nonFinite;
  assert.deepEqual([before.value, before.state], [0, "ok"]);
  const error = await failure(() => model.generate(ONCE, { maxTokens: 4 }).finished);
  assert.equal(error.code, "NonFinite");
  const { value, from, state } = (await model.health()).signals.nonFinite;
  assert.ok(from.seen! > 0 && from.failed === 1 && value! > 1, JSON.stringify(from));
  assert.equal(state, "alert");
});

test("a loop is an alert", async (context) => {
  const model = await demo(context);
  const loop = [ONCE[0]!, ONCE[1]!];
  const { repetitionScore } = await model.generate(ONCE, {
    maxTokens: 64,
    // The same two tokens in turn.
    logitsProcessor: (logits, tokens) => {
      logits.fill(-1e9);
      logits[loop[tokens.length % 2]!] = 0;
    },
  }).finished;
  assert.ok(repetitionScore > 0.9, String(repetitionScore));
  const { repetition } = (await model.health()).signals;
  assert.deepEqual([repetition.value, repetition.state], [repetitionScore, "alert"]);
});

for (const kvCacheType of ["f32", "f16", "fp8", "q8", "q4", "q2"] as const) {
  test(`a cache of one repeated token has less entropy than one of a text, in ${kvCacheType}`, async (context) => {
    const entropies = [];
    for (const prompt of [Array.from({ length: 96 }, (_, i) => (37 * i + 11) % 4000), Array(96).fill(5)]) {
      const model = await demo(context, { ...always, kvCacheType });
      await model.generate(prompt, { maxTokens: 8, temperature: 0, ignoreEos: true }).finished;
      const { kvEntropy, kvSaturation, nonFinite } = (await model.health()).signals;
      assert.equal(nonFinite.value, 0);
      assert.ok(kvSaturation.value! >= 0 && kvSaturation.value! < 0.5);
      if (kvCacheType.startsWith("q")) assert.ok(kvSaturation.value! > 0, "one of each row is at its limit");
      entropies.push(kvEntropy.layers!.reduce((sum, layer) => sum + layer!.values, 0));
      await model.close();
    }
    assert.ok(entropies[1]! < entropies[0]!, entropies.join());
  });
}

for (const kvCacheType of ["f32", "f16", "q8", "q4"] as const) {
  test(`a cache of one token is an alert, and one of a text is well, in ${kvCacheType}`, async (context) => {
    const same = await demo(context, { ...always, kvCacheType });
    await same.generate(Array(400).fill(5), { maxTokens: 8, temperature: 0, ignoreEos: true }).finished;
    const { kvEntropy } = (await same.health()).signals;
    assert.equal(kvEntropy.state, "alert", JSON.stringify(kvEntropy));
    const text = await demo(context, { ...always, kvCacheType });
    const answers = [1, 2].map((seed) => text.generate(ONCE, { maxTokens: 96, seed, ignoreEos: true }).finished);
    await Promise.all(answers);
    const well = (await text.health()).signals.kvEntropy;
    assert.deepEqual([well.state, well.from], ["ok", { layers: 6, of: 6 }], JSON.stringify(well));
    // What was well falls when the cache does: the bins stay where they were.
    await text.generate(Array(400).fill(5), { maxTokens: 48, temperature: 0, ignoreEos: true }).finished;
    assert.ok((await text.health()).signals.kvEntropy.value! < well.value! - 1);
  });
}

test("a layer that was not looked at yet is not called ok", async (context) => {
  const model = await demo(context, always);
  // The last step is the first that finds enough positions; it looks at some layers.
  await model.generate(ONCE, { maxTokens: 17 - ONCE.length, seed: 1, ignoreEos: true }).finished;
  const { kvEntropy } = (await model.health()).signals;
  assert.ok(
    kvEntropy.from.layers! > 0 && kvEntropy.from.layers! < 6 && kvEntropy.from.of === 6,
    JSON.stringify(kvEntropy.from),
  );
  assert.equal(kvEntropy.state, "unknown");
});

test("thresholds that were given decide", async (context) => {
  const thresholds = { perplexity: { warn: 1, alert: 1e9 }, kvEntropy: { warn: 60, alert: 50 } };
  const model = await demo(context, { health: { share: 1, thresholds } });
  await model.generate(ONCE, { maxTokens: 32, seed: 1 }).finished;
  const { signals, calibrated, state } = await model.health();
  assert.deepEqual([signals.perplexity.state, signals.kvEntropy.state, state], ["warn", "alert", "alert"]);
  const again = await demo(context, { health: { share: 1, thresholds: calibrated } });
  await again.generate(ONCE, { maxTokens: 32, seed: 1 }).finished;
  assert.equal((await again.health()).state, "ok");
  const wrong = await failure(() => demo(context, { health: { thresholds: { perplexity: 5 } as never } }));
  assert.equal(wrong.detail.option, "health");
  for (const thresholds of [{ perplexty: { warn: 1, alert: 2 } }, { perplexity: { warn: 1, alarm: 2 } }]) {
    const { code, detail } = await failure(() => demo(context, { health: { thresholds: thresholds as never } }));
    assert.deepEqual([code, detail.option], ["InvalidArgument", "health"]);
    assert.match(detail.found!, /perplexty|warn, alarm/);
  }
});

test("a caller that forbids every token is told so, and nothing is wrong with the model", async (context) => {
  const model = await demo(context, always);
  const forbidden = { responseFormat: { type: "regex", pattern: "a" }, bannedSequences: ["a"] } as const;
  const error = await failure(() => model.generate(ONCE, { maxTokens: 4, ...forbidden }).finished);
  assert.deepEqual([error.code, error.detail.option], ["InvalidArgument", "bannedSequences"]);
  assert.match(error.message, /every token is forbidden/);
  const { value, state } = (await model.health()).signals.nonFinite;
  assert.deepEqual([value, state], [0, "ok"]);
});

test("the command tells the same, and exits with 1 on an alert", async () => {
  const found = (await json(
    "health",
    DEMO.pathname,
    "Once upon a time",
    "-n",
    "48",
    "--threads",
    "1",
  )) as unknown as Health;
  assert.equal(found.state, "ok");
  assert.equal(found.signals.weights.from.changed, 0);
  const { status, stdout } = await ternlight(
    "health",
    DEMO.pathname,
    "-n",
    "16",
    "--threads",
    "1",
    "--flip-codes",
    "9",
  );
  assert.equal(status, 1);
  assert.match(stdout, /^alert\n.*\n +weights +alert +[\d.]+ % .*changed 9/);
  const layers = Array.from(stdout.matchAll(/^ *(\d+) +\d+\.?\d* +\d+\.?\d*$/gm), ([, layer]) => Number(layer));
  assert.deepEqual(layers, [0, 1, 2, 3, 4, 5], stdout);
});
