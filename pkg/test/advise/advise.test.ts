/** Advice on settings: what a load is predicted to give, what is recommended for it, and what is missing. */

import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { Worker } from "node:worker_threads";
import { load, type Model } from "ternlight";
import { type DeviceReport, deviceReport, recommend } from "ternlight/doctor";
import { estimate, probe } from "../../src/advise/probe.ts";
import { recommend as recommendWith } from "../../src/advise/recommend.ts";
import { msAt, play, stepMs } from "../../src/advise/simulate.ts";
import { once } from "../../src/api/model.ts";
import { percentile } from "../../src/bench/stats.ts";
import { owned } from "../../src/platform/node_ports.ts";
import { withSource } from "../../src/source/with_source.ts";
import { DEMO, failure } from "../api/support/model.ts";
import { done, failure as failed, json, DEMO as NAME, ternlight } from "../cli/support/ternlight.ts";

const curve = [
  { rows: 1, ms: 10 },
  { rows: 64, ms: 10 },
];
const flat = { answers: curve, prompts: curve, besideMs: 0 };

test("times between measured steps lie on straight lines", () => {
  const steps = [
    { rows: 2, ms: 4 },
    { rows: 4, ms: 8 },
    { rows: 8, ms: 10 },
  ];
  const found = [1, 2, 3, 4, 6, 8, 12].map((rows) => msAt(steps, rows));
  assert.deepEqual(found, [4, 4, 6, 8, 9, 10, 12]);
  assert.equal(msAt([{ rows: 1, ms: 3 }], 100), 3);
  // Answers beside a prompt add to what reading it takes.
  const all = { answers: steps, prompts: [{ rows: 32, ms: 20 }], besideMs: 0.5 };
  assert.deepEqual([stepMs(all, 4, 0), stepMs(all, 0, 32), stepMs(all, 4, 32)], [8, 20, 22]);
});

test("a load that can be worked out by hand is played as such", () => {
  const load = { users: 1, promptTokens: 100, answerTokens: 5, maxSequences: 1, prefillChunk: 256 };
  // One step reads the prompt and gives the first token.
  const alone = play(flat, load);
  assert.ok(
    alone.firstMs.every((ms) => Math.abs(ms - 10) < 1e-6) && alone.wholeMs.every((ms) => Math.abs(ms - 50) < 1e-6),
  );
  assert.ok(Math.abs(alone.tokensPerSecond - 100) < 1e-6);
  // Two users at one place wait for each other; at two places neither does, where rows cost nothing.
  const waits = play(flat, { ...load, users: 2 });
  assert.equal(Math.round(percentile(waits.wholeMs, 95)), 100);
  const beside = play(flat, { ...load, users: 2, maxSequences: 2, promptTokens: 16 });
  assert.ok(beside.tokensPerSecond > 1.9 * alone.tokensPerSecond, String(beside.tokensPerSecond));
  // Beside answers a prompt gets an eighth of a chunk: a long one takes many steps.
  const long = play(flat, { ...load, users: 2, maxSequences: 2, promptTokens: 512, answerTokens: 64 });
  assert.ok(Math.max(...long.firstMs) >= 10 * (512 / 32 / 2), String(Math.max(...long.firstMs)));
});

/**
 * The same load played another way: every step by itself, for one place and prompts that one step reads. A slice of the worker ends after
 * 8 ms or 64 steps, or where nothing runs; what was posted before is read then, and its answers are heard of.
 */
function stepByStep(
  step: number,
  read: number,
  { users, answers }: { users: number; answers: number },
  requests: number,
) {
  let [now, steps, begun] = [0, 0, 0];
  const line: number[] = [];
  let inbox = Array<number>(users).fill(0);
  let running: { asked: number; left: number } | null = null;
  let done: number[] = [];
  const whole: number[] = [];
  while (whole.length < requests) {
    const ends = steps >= 64 || now - begun >= 8 || (running === null && line.length === 0);
    if (ends) {
      // Those who are answered ask again at once, and are read with the next look.
      const arrived = inbox;
      inbox = done.map(() => now);
      whole.push(...done.map((asked) => now - asked));
      done = [];
      line.push(...arrived);
      if (line.length === 0 && running === null) line.push(...inbox.splice(0));
      [steps, begun] = [0, now];
      continue;
    }
    if (running === null) {
      running = { asked: line.shift()!, left: answers };
      now += read;
    } else now += step;
    steps++;
    if (--running.left === 0) {
      done.push(running.asked);
      running = null;
    }
  }
  return { whole, tokensPerSecond: (1000 * whole.length * answers) / now };
}

test("what is predicted is what a simulation of every step gives", () => {
  for (const [step, read, users, answers] of [
    [0.26, 4.7, 1, 96],
    [0.26, 18.5, 4, 64],
    [3.3, 100, 4, 32],
    [44, 900, 2, 8],
  ] as const) {
    const steps = { answers: [{ rows: 1, ms: step }], prompts: [{ rows: 100, ms: read }], besideMs: 0 };
    const load = { users, promptTokens: 100, answerTokens: answers, maxSequences: 1, prefillChunk: 256 };
    const played = play(steps, load);
    const found = stepByStep(step, read, { users, answers }, played.wholeMs.length);
    const near = (a: number, b: number) => Math.abs(a / b - 1) < 0.01;
    const what = JSON.stringify({ step, read, users, answers });
    assert.ok(
      near(played.tokensPerSecond, found.tokensPerSecond),
      `${what} ${played.tokensPerSecond} ${found.tokensPerSecond}`,
    );
    for (const p of [50, 95])
      assert.ok(
        near(percentile(played.wholeMs, p), percentile(found.whole, p)),
        `${what} ${percentile(played.wholeMs, p)} ${percentile(found.whole, p)}`,
      );
  }
});

test("a probe measures code that the runtime has made fast, and takes about a second", async (context) => {
  let [clock, written] = [0, 0];
  context.mock.method(performance, "now", () => clock);
  // Steps take two thirds more at first, and come near their time within some hundred tokens.
  const ms = () => 0.3 + 0.2 * Math.exp(-written / 150);
  const generate = (_: number[], { maxTokens }: { maxTokens: number }) => {
    let [made, predictedMs] = [0, 0];
    const timings = () => ({ predictedN: made, predictedMs, ttftMs: 1 });
    return {
      async *[Symbol.asyncIterator]() {
        while (made < maxTokens) {
          const one = ms();
          clock += one;
          written++;
          if (made++ > 0) predictedMs += one;
          yield {};
        }
      },
      get finished() {
        return Promise.resolve({ timings: timings() });
      },
    };
  };
  const model = {
    generate,
    warmup: async () => {},
    status: async () => ({}),
    info: { vocab: 100, contextLength: 512 },
  };
  const { steps } = await probe(model as unknown as Model, {
    most: 1,
    prefillChunk: 256,
    promptTokens: 32,
    answerTokens: 96,
  });
  assert.ok(clock > 500 && clock < 2500, `${clock} ms`);
  assert.ok(steps.answers[0]!.ms < 0.315, String(steps.answers[0]!.ms));
});

test("answers that there was no time to measure cost what answers cost, not what a prompt's tokens do", async (context) => {
  let [clock, active] = [0, 0];
  context.mock.method(performance, "now", () => clock);
  const [read, multiplied, answered] = [20, 0.7, 12];
  const share = 32;
  const generate = (ids: number[], { maxTokens }: { maxTokens: number }) => {
    active++;
    let others = 0;
    const run = async () => {
      await null;
      others = active - 1;
      await null;
      active--;
      clock += (maxTokens * (read + answered * (others + 1))) / (others + 1);
      const steps = others > 0 ? ids.length / share : 1;
      return {
        predictedN: maxTokens,
        predictedMs: (maxTokens - 1) * (read + answered * (others + 1)),
        ttftMs: steps * (read + answered * others) + multiplied * ids.length,
      };
    };
    const timings = run();
    return {
      async *[Symbol.asyncIterator]() {
        yield await timings;
      },
      finished: timings.then((timings) => ({ timings })),
    };
  };
  const model = {
    generate,
    warmup: async () => {},
    status: async () => ({}),
    info: { vocab: 100, contextLength: 1024 },
  };
  const load = { prefillChunk: 256, promptTokens: 128, answerTokens: 32 };
  const { steps } = await probe(model as unknown as Model, { most: 16, ...load });
  assert.ok(steps.answers.length < 4, "time ran out");
  for (const rows of [2, 4, 8, 16]) {
    const [found, real] = [msAt(steps.answers, rows), read + answered * rows];
    assert.ok(Math.abs(found / real - 1) < 0.05, `${rows} answers take ${real} ms, not ${found}`);
  }
});

test("a machine that is uneven makes slow answers slower, as often as it was measured to be", () => {
  const load = { users: 1, promptTokens: 16, answerTokens: 3, maxSequences: 1, prefillChunk: 256 };
  const jitter = [...Array<number>(8).fill(1), 2, 2];
  const [even, uneven] = [play(flat, load), play(flat, { ...load, jitter })];
  const spread = (played: { wholeMs: number[] }) => [50, 95].map((p) => Math.round(percentile(played.wholeMs, p)));
  assert.deepEqual(
    [spread(even), spread(uneven)],
    [
      [30, 30],
      [30, 60],
    ],
  );
  // A fifth of the work takes twice as long.
  const slower = even.tokensPerSecond / uneven.tokensPerSecond;
  assert.ok(slower > 1.1 && slower < 1.3, String(slower));
  assert.deepEqual(play(flat, { ...load, jitter }).wholeMs, uneven.wholeMs);
});

test("no answer is whole before its first token, whatever still runs when a play ends", () => {
  const load = { users: 4, promptTokens: 32, answerTokens: 16, prefillChunk: 256, jitter: [1, 1, 1, 6] };
  for (const maxSequences of [1, 2, 4]) {
    for (let ms = 0.05; ms < 4; ms *= 1.07) {
      const [answers, prompts] = [[{ rows: 1, ms }], [{ rows: 1, ms: 3 * ms }]];
      const { firstMs, wholeMs } = play({ answers, prompts, besideMs: ms / 5 }, { ...load, maxSequences });
      assert.equal(firstMs.length, wholeMs.length);
      assert.ok(firstMs.every((first, i) => first <= wholeMs[i]!));
      assert.ok(percentile(firstMs, 50) <= percentile(wholeMs, 50));
    }
  }
});

test("a recommendation for this machine can be loaded, and tells why", async (context) => {
  const found = await recommend(DEMO, { users: 4, promptTokens: 32, answerTokens: 16 });
  const { fits, missing, settings, predicted, considered, why, measured } = found;
  assert.deepEqual([fits, missing, measured], [true, null, "this machine"]);
  assert.deepEqual(
    considered.map(({ maxSequences }) => maxSequences),
    [1, 2, 4],
  );
  assert.ok(why.length >= 3 && predicted.tokensPerSecond > 0);
  assert.ok(predicted.firstTokenMs.p50 <= predicted.answerMs.p50 && predicted.answerMs.p50 <= predicted.answerMs.p95);
  const model = await load(DEMO, settings);
  context.after(() => model.close());
  assert.equal(model.info.maxSequences, settings.maxSequences);
  assert.equal(model.info.threads, settings.threads);
  assert.equal(model.info.kvCacheType, settings.kvCacheType);
  assert.equal(model.info.memory.total, predicted.memory.total);
});

const device: DeviceReport = {
  date: "2026-01-01T00:00:00.000Z",
  runtime: "Node 24",
  processor: null,
  cores: 4,
  physicalCores: 4,
  simd: "relaxed",
  flavour: "threads-relaxed",
  threads: 4,
  readGbPerSecond: 20,
  gmacPerSecond: 100,
  freeMemory: 2 ** 31,
};

test("half of the memory changes the answer, and too little is told", async () => {
  const load = { users: 8, promptTokens: 200, answerTokens: 56, device };
  const plenty = await recommend(DEMO, load);
  assert.deepEqual([plenty.fits, plenty.settings.kvCacheType, plenty.settings.threads], [true, "f32", 4]);
  const half = await recommend(DEMO, { ...load, memory: Math.floor(plenty.predicted.memory.total / 2) });
  assert.notDeepEqual(half.settings, plenty.settings);
  assert.ok(half.predicted.memory.total <= plenty.predicted.memory.total / 2);
  const none = await recommend(DEMO, { ...load, memory: 1e6 });
  assert.equal(none.fits, false);
  assert.match(none.missing!, /^\d+ bytes of memory: .* and there are 1000000$/);
});

test("a device's memory counts, and not this machine's", async () => {
  const spawnEngine = () => owned(new Worker(new URL("../../dist/node-worker.js", import.meta.url)));
  const asked: unknown[] = [];
  const watched = () => {
    const port = spawnEngine();
    const { post } = port;
    port.post = (message, transfer) => {
      const { verb, args } = message as unknown as { verb?: string; args: { free?: unknown } };
      if (verb === "canRun") asked.push(args.free);
      post(message, transfer);
    };
    return port;
  };
  const toPath = (url: URL) => fileURLToPath(url);
  for (const freeMemory of [2 ** 45, null]) {
    asked.length = 0;
    const outside = { spawnEngine: watched, base: null, toPath };
    assert.ok((await recommendWith(outside, DEMO, { device: { ...device, freeMemory } })).fits);
    assert.ok(asked.length > 0 && asked.every((free) => free === freeMemory), `${asked}`);
  }
  const outside = { spawnEngine, base: null, toPath };
  const available = (free: number | null) =>
    once(outside, undefined, (client) =>
      withSource(outside, DEMO, {}, async (source) => {
        const found = await client.call("canRun", { source, settings: {}, free }, {});
        return found.available;
      }),
    );
  const [much, unknown, little] = [await available(2 ** 45), await available(null), await available(2e8)];
  assert.ok(much === unknown && much > 4e9 && little < 1e8, `${much}, ${unknown}, ${little}`);
});

test("a shorter chunk is taken before a coarser head or cache", async () => {
  const load = { promptTokens: 32, answerTokens: 16, device };
  const few = await recommend(DEMO, { ...load, memory: 4.5e6 });
  assert.equal(few.fits, true, few.missing ?? "");
  assert.deepEqual([few.settings.prefillChunk, few.settings.head, few.settings.kvCacheType], [32, "stored", "f32"]);
  assert.match(few.why.join(), /prompts are read 32 tokens at a time: the most that/);
  const some = await recommend(DEMO, { ...load, memory: 8e6 });
  assert.deepEqual([some.settings.head, some.settings.kvCacheType], ["stored", "f32"]);
  const { prefillChunk } = some.settings;
  assert.ok(prefillChunk === 64 || prefillChunk === 128, String(prefillChunk));
  // Where a time is asked for that a shorter chunk does not keep, a longer one with fewer bits may.
  const long = { promptTokens: 256, answerTokens: 2, device: { ...device, readGbPerSecond: 0.05 } };
  const precise = await recommend(DEMO, { ...long, memory: 7e6 });
  const within = precise.predicted.answerMs.p95 - 1;
  const fast = await recommend(DEMO, { ...long, memory: 7e6, p95Ms: within });
  assert.ok(fast.fits && fast.settings.prefillChunk! > precise.settings.prefillChunk!, JSON.stringify(fast.settings));
});

test("what is settled is kept, and what it rules out is told", async () => {
  const settled = { kvCacheType: "q8", contextLength: 512, prefillChunk: 64, threads: 1, head: "q8_0" } as const;
  const { settings, why, considered } = await recommend(DEMO, { users: 2, load: settled, device });
  for (const [option, value] of Object.entries(settled)) assert.equal(settings[option as "threads"], value, option);
  assert.match(why.join(), /settled before: .*contextLength/);
  assert.equal(considered.length, 2);
  const own = await recommend(DEMO, { users: 2, load: { maxSequences: 3 }, device });
  assert.deepEqual([own.settings.maxSequences, own.considered.length], [3, 1]);
  const short = await recommend(DEMO, { promptTokens: 600, load: settled, device });
  assert.deepEqual(
    [short.fits, /^context: .* 672 positions, and contextLength is 512$/.test(short.missing!)],
    [false, true],
  );
  const wrong = await failure(() => recommend(DEMO, { load: { threads: 0 } }));
  assert.deepEqual([wrong.code, wrong.detail.option], ["InvalidArgument", "threads"]);
});

test("a time that cannot be kept is told, and one that can changes the setting", async () => {
  const load = { users: 16, promptTokens: 64, answerTokens: 32 };
  const slow = { ...device, gmacPerSecond: 0.5 };
  const free = await recommend(DEMO, { ...load, device: slow });
  const never = await recommend(DEMO, { ...load, device: slow, p95Ms: 1 });
  assert.equal(never.fits, false);
  assert.match(never.missing!, /^speed: 95 of 100 answers are whole after \d+ ms, and 1 ms were asked for$/);
  const kept = await recommend(DEMO, { ...load, device: slow, p95Ms: free.predicted.answerMs.p95 + 1 });
  assert.ok(kept.fits && kept.predicted.answerMs.p95 <= free.predicted.answerMs.p95 + 1);
  // A machine that is twice as fast is predicted to be.
  const faster = await recommend(DEMO, { ...load, device: { ...slow, gmacPerSecond: 1 } });
  assert.ok(faster.predicted.tokensPerSecond > 1.5 * free.predicted.tokensPerSecond);
  assert.equal((await failure(() => recommend(DEMO, { users: 0 }))).detail.option, "users");
});

test("what memory brings is the least that a step takes", () => {
  const about = { heads: [{ bytesPerToken: 150e6 }], parameters: 1e9 } as never;
  const { answers } = estimate({ ...device, readGbPerSecond: 20, gmacPerSecond: 400 }, about, [1, 64]);
  const [one, many] = answers;
  assert.ok(Math.abs(one!.ms - 10.1) < 0.01, String(one!.ms));
  assert.ok(Math.abs(many!.ms - 320.1) < 0.1, String(many!.ms));
});

test("commands report the machine, advise on it, and tell what fits", async (context) => {
  const report = await deviceReport();
  assert.ok(report.readGbPerSecond > 0.1 && report.gmacPerSecond > 0.1 && report.threads >= 1);
  const folder = await mkdtemp(path.join(tmpdir(), "ternlight-device-"));
  context.after(() => rm(folder, { recursive: true, force: true }));
  const file = path.join(folder, "device.json");
  const told = await json("device-report");
  assert.deepEqual(Object.keys(told).sort(), Object.keys(report).sort());
  await writeFile(file, JSON.stringify(told));
  const load = [NAME, "--users", "4", "--prompt-tokens", "32", "--answer-tokens", "16"];
  const found = await json("recommend", ...load, "--device", file);
  assert.deepEqual([found.fits, found.measured], [true, "a report"]);
  const { stdout, status } = await ternlight("recommend", ...load, "--device", file, "--p95", "0.001");
  assert.equal(status, 1);
  assert.match(stdout, /no setting gives what was asked for\. Missing: speed/);
  const flags = [
    "--kv",
    "q8",
    "--context",
    "512",
    "--prefill-chunk",
    "64",
    "--threads",
    "1",
    "--kv-cache-tokens",
    "2048",
  ];
  const { settings } = await json("recommend", ...load, ...flags, "--device", file);
  const { kvCacheType, contextLength, prefillChunk, threads, kvCacheTokens } = settings;
  assert.deepEqual([kvCacheType, contextLength, prefillChunk, threads, kvCacheTokens], ["q8", 512, 64, 1, 2048]);
  await writeFile(file, "{}");
  assert.equal((await failed(1, "recommend", ...load, "--device", file)).code, "BadValue");

  assert.match((await done("can-run", NAME)).stdout, /^ternlight-demo fits\n/);
  const none = await ternlight("can-run", NAME, "--memory", "5MB");
  assert.equal(none.status, 1);
  assert.match(none.stdout, /may have 5000000/);
});
