/** Advice on settings: what a load is predicted to give, what is recommended for it, and what is missing. */

import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { load } from "ternlight";
import { type DeviceReport, deviceReport, recommend } from "ternlight/doctor";
import { estimate } from "../../src/advise/probe.ts";
import { percentile, play, stepMs } from "../../src/advise/simulate.ts";
import { physicalCores } from "../../src/platform/node.ts";
import { DEMO, failure } from "../api/support/model.ts";
import { done, failure as failed, json, DEMO as NAME, ternlight } from "../cli/support/ternlight.ts";

const flat = [
  { rows: 1, ms: 10 },
  { rows: 64, ms: 10 },
];

test("times between measured steps lie on straight lines", () => {
  const steps = [
    { rows: 2, ms: 4 },
    { rows: 4, ms: 8 },
    { rows: 8, ms: 10 },
  ];
  const found = [1, 2, 3, 4, 6, 8, 12].map((rows) => stepMs(steps, rows));
  assert.deepEqual(found, [4, 4, 6, 8, 9, 10, 12]);
  assert.equal(stepMs([{ rows: 1, ms: 3 }], 100), 3);
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
  assert.equal(Math.round(percentile(waits.wholeMs, 0.95)), 100);
  const beside = play(flat, { ...load, users: 2, maxSequences: 2, promptTokens: 16 });
  assert.ok(beside.tokensPerSecond > 1.9 * alone.tokensPerSecond, String(beside.tokensPerSecond));
  // Beside answers a prompt gets an eighth of a chunk: a long one takes many steps.
  const long = play(flat, { ...load, users: 2, maxSequences: 2, promptTokens: 512, answerTokens: 64 });
  assert.ok(Math.max(...long.firstMs) >= 10 * (512 / 32 / 2), String(Math.max(...long.firstMs)));
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
  const [one, many] = estimate({ ...device, readGbPerSecond: 20, gmacPerSecond: 400 }, about, [1, 64]);
  assert.ok(Math.abs(one!.ms - 10.1) < 0.01, String(one!.ms));
  assert.ok(Math.abs(many!.ms - 320.1) < 0.1, String(many!.ms));
});

test("cores are told apart from their threads", async (context) => {
  const folder = await mkdtemp(path.join(tmpdir(), "ternlight-cores-"));
  context.after(() => rm(folder, { recursive: true, force: true }));
  const file = path.join(folder, "cpuinfo");
  const block = (socket: number, core: number) =>
    `processor\t: 0\nphysical id\t: ${socket}\ncore id\t\t: ${core}\nflags : x`;
  await writeFile(file, [block(0, 0), block(0, 1), block(0, 0), block(0, 1), block(1, 0)].join("\n\n"));
  assert.equal(physicalCores(file), 3);
  await writeFile(file, "processor : 0\nBogoMIPS : 50\n");
  assert.equal(physicalCores(file), null);
  assert.equal(physicalCores(path.join(folder, "none")), null);
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
  assert.match(stdout, /nothing fits\. Missing: speed/);
  await writeFile(file, "{}");
  assert.equal((await failed(1, "recommend", ...load, "--device", file)).code, "BadValue");

  assert.match((await done("can-run", NAME)).stdout, /^ternlight-demo fits\n/);
  const none = await ternlight("can-run", NAME, "--memory", "5MB");
  assert.equal(none.status, 1);
  assert.match(none.stdout, /may have 5000000/);
});
