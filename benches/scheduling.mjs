/**
 * What the order of requests is worth, on the demo model in this process:
 *
 *   node benches/scheduling.mjs [--users 128] [--seconds 8] [--repeat 3] [--threads N] [--only batching|tiers]
 *
 * batching: 128 users with prompts of 128 tokens and answers of 16 to 112, on 16 places: requests join and leave the batch at every step
 * ("dynamic", and the same first come, first served), batches of 16 that begin together and wait for their last answer ("static"), and
 * one request at a time. tiers: 8 users each with short, medium and long requests on 8 places, in fair order and first come, first
 * served. All by turns. Writes results/DATE-scheduling.json. Node 22.18 or newer and a built package. About four minutes.
 */
import { writeFile } from "node:fs/promises";
import { availableParallelism, cpus, loadavg } from "node:os";
import { parseArgs } from "node:util";
import { randomBits } from "../pkg/src/bench/blocks.ts";
import { engineTarget } from "../pkg/src/bench/load/engine.ts";
import { run } from "../pkg/src/bench/load/run.ts";
import { load } from "../pkg/dist/node.js";
import { median } from "./median.mjs";

const PROMPT = 128;
const [SHORTEST, LONGEST] = [16, 112];
const PLACES = 16;
const CONTEXT = 256;
const percentiles = [50, 95, 99];
const tiers = {
  short: { promptTokens: 16, maxTokens: 16 },
  medium: { promptTokens: 64, maxTokens: 48 },
  long: { promptTokens: 256, maxTokens: 128 },
};
const TIER_USERS = 8;

const { values } = parseArgs({
  options: {
    users: { type: "string", default: "128" },
    seconds: { type: "string", default: "8" },
    repeat: { type: "string", default: "3" },
    threads: { type: "string", default: String(Math.min(availableParallelism(), 8)) },
    only: { type: "string" },
  },
});
const [users, duration, repeat, threads] = [values.users, values.seconds, values.repeat, values.threads].map(Number);
const demo = new URL("../pkg/models/ternlight-demo/", import.meta.url);
const none = { abort: 0, slow: 0 };

/** Answers end where they end: the same request has the same length in every order. */
const ofManyLengths = (target) => ({
  ...target,
  ask: (planned, ...more) => {
    const maxTokens = SHORTEST + (randomBits(planned.seed)() % (LONGEST - SHORTEST + 1));
    return target.ask({ ...planned, maxTokens }, ...more);
  },
});

/** As a server without dynamic batching: so many begin together, and the next ones when the last of them has ended. */
function inStaticBatches(target, size) {
  const waiting = [];
  let running = 0;
  const begin = () => {
    if (running > 0) return;
    const batch = waiting.splice(0, size);
    running = batch.length;
    for (const start of batch) start();
  };
  return {
    ...target,
    async ask(...request) {
      await new Promise((start) => {
        waiting.push(start);
        // Users that ask in the same moment get into the same batch.
        setImmediate(begin);
      });
      try {
        return await target.ask(...request);
      } finally {
        if (--running === 0) setImmediate(begin);
      }
    },
  };
}

async function withModel(options, work) {
  const model = await load(demo, { threads, cache: false, maxWaiting: Math.max(users, TIER_USERS * Object.keys(tiers).length), ...options });
  try {
    await model.warmup();
    return await work(engineTarget(model, () => process.memoryUsage.rss()));
  } finally {
    await model.close();
  }
}

const places = { maxSequences: PLACES, contextLength: CONTEXT, kvCacheTokens: PLACES * CONTEXT };
const orders = {
  dynamic: { options: places },
  "dynamic, first come": { options: { ...places, scheduling: "fcfs" } },
  "static batches of 16": { options: places, wrap: (target) => inStaticBatches(target, PLACES) },
  "one at a time": { options: places, size: 1 },
};

async function batching(seed, { options, wrap = (target) => target, size = null }) {
  const plan = { users, duration, promptTokens: PROMPT, maxTokens: LONGEST, ...none, seed };
  return withModel(options, (target) => run(wrap(ofManyLengths(target)), { plan, size, percentiles }));
}

async function ofTiers(seed, scheduling) {
  return withModel({ scheduling }, async (target) => {
    const runs = Object.entries(tiers).map(async ([name, tokens], i) => {
      const plan = { users: TIER_USERS, duration, ...tokens, ...none, seed: 3 * seed + i };
      return [name, await run(target, { plan, size: null, percentiles })];
    });
    return Object.fromEntries(await Promise.all(runs));
  });
}

const before = loadavg()[0];
const rows = { batching: {}, tiers: {} };
for (let turn = 1; turn <= repeat; turn++) {
  if (values.only !== "tiers")
    for (const [name, order] of Object.entries(orders)) (rows.batching[name] ??= []).push(await batching(turn, order));
  if (values.only !== "batching")
    for (const scheduling of ["fair", "fcfs"]) (rows.tiers[scheduling] ??= []).push(await ofTiers(turn, scheduling));
}

const all = [...Object.values(rows.batching).flat(), ...Object.values(rows.tiers).flat().flatMap(Object.values)];
for (const { refused, failed, unfinished, errors } of all)
  if (refused + failed + unfinished > 0)
    throw new Error(`requests were lost: ${JSON.stringify({ refused, failed, unfinished, errors })}`);
const of = (runs, value) => median(runs.map(value));
const line = (name, runs) => {
  const [served, tokens] = [of(runs, (row) => row.servedPerSecond), of(runs, (row) => row.tokensPerSecond)];
  const p95 = ["firstMs", "wholeMs"].map((time) => of(runs, (row) => row[time].p95).toFixed(0));
  console.log(`| ${[name, served.toFixed(1), tokens.toFixed(0), ...p95].join(" | ")} |`);
};
console.log("| | requests/s | tokens/s | first token p95, ms | whole p95, ms |\n|---|--:|--:|--:|--:|");
for (const [name, runs] of Object.entries(rows.batching)) line(name, runs);
for (const [name, runs] of Object.entries(rows.tiers))
  for (const tier of Object.keys(tiers)) line(`${name}, ${tier}`, runs.map((row) => row[tier]));
const machine = { cpu: cpus()[0].model, cores: cpus().length, node: process.version, loadBefore: before, loadAfter: loadavg()[0] };
const settings = { seconds: duration, repeat, threads, users, promptTokens: PROMPT, places: PLACES, tiers, tierUsers: TIER_USERS };
const date = new Date().toISOString();
const file = new URL(`results/${date.slice(0, 10)}-scheduling.json`, import.meta.url);
await writeFile(file, `${JSON.stringify({ date, machine, settings, rows })}\n`);
