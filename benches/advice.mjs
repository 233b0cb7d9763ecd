/**
 * How well `recommend` predicts: six workloads on two shapes, each measured by the load test at every number of requests at once that was
 * considered.
 *
 *   node benches/advice.mjs [--quick] [--seconds 6]
 *
 * Prints for each workload what was predicted and measured with the recommended settings, tokens/s and p95 of whole answers, the fewest
 * requests at once with 97 % of the best speed that the sweep found, and the fastest number. Exits with 1 where a number is off by more than
 * 25 %, or where the recommended number is more than one step of the sweep from the fewest. --quick takes two workloads. Other programs' load
 * counts as an error: run it on a quiet machine. About four minutes; writes results/DATE-advice.json. Node 22.18 or newer and a built package.
 */
import { writeFile } from "node:fs/promises";
import { cpus, loadavg } from "node:os";
import { parseArgs } from "node:util";
import { recommend } from "../pkg/dist/node-doctor.js";
import { load } from "../pkg/dist/node.js";
import { engineTarget } from "../pkg/src/bench/load/engine.ts";
import { run } from "../pkg/src/bench/load/run.ts";
import { synthetic } from "../pkg/src/bench/synthetic.ts";

const shapes = {
  demo: new URL("../pkg/models/ternlight-demo/", import.meta.url),
  "138m,layers=8": synthetic({ shape: "138m,layers=8" }),
};
const workloads = [
  ["demo", { users: 4, promptTokens: 128, answerTokens: 64 }],
  ["138m,layers=8", { users: 4, promptTokens: 128, answerTokens: 32 }],
  ["demo", { users: 1, promptTokens: 32, answerTokens: 96 }],
  ["demo", { users: 16, promptTokens: 64, answerTokens: 128 }],
  ["138m,layers=8", { users: 1, promptTokens: 256, answerTokens: 32 }],
  ["138m,layers=8", { users: 8, promptTokens: 32, answerTokens: 64 }],
];
const QUICK = 2;
/** The most that a prediction may be off. */
const MAX_OFF = 0.25;
/** As in `recommend`: a smaller number is enough where it gives so much of the best speed. */
const ENOUGH = 0.97;

const { values } = parseArgs({ options: { quick: { type: "boolean" }, seconds: { type: "string", default: "6" } } });
const duration = Number(values.seconds);

async function measured(source, settings, { users, promptTokens, answerTokens }, size) {
  const { contextLength } = settings;
  const own = { maxSequences: size, maxBatchTokens: settings.prefillChunk + size, kvCacheTokens: contextLength * size };
  const model = await load(source, { ...settings, ...own });
  try {
    await model.warmup();
    const plan = { users, duration, promptTokens, maxTokens: answerTokens, abort: 0, slow: 0, seed: 1 };
    // The load test's own limit stays out of it: those that wait do so in the engine.
    const target = engineTarget(model, () => null);
    const row = await run(target, { plan, size: users, percentiles: [50, 95] });
    return { size, tokensPerSecond: row.tokensPerSecond, p95Ms: row.wholeMs.p95, answers: row.whole };
  } finally {
    await model.close();
  }
}

const off = (predicted, found) => predicted / found - 1;
const percent = (share) => `${share < 0 ? "−" : "+"}${Math.abs(100 * share).toFixed(0)} %`;
const results = [];
const before = loadavg()[0];
for (const [shape, load] of workloads.slice(0, values.quick ? QUICK : undefined)) {
  const { settings, predicted, considered, steps } = await recommend(shapes[shape], load);
  const sizes = considered.map(({ maxSequences }) => maxSequences);
  const sweep = [];
  for (const size of sizes) sweep.push(await measured(shapes[shape], settings, load, size));
  const best = Math.max(...sweep.map(({ tokensPerSecond }) => tokensPerSecond));
  const fastest = sweep.find(({ tokensPerSecond }) => tokensPerSecond === best).size;
  const enough = sweep.findIndex(({ tokensPerSecond }) => tokensPerSecond >= ENOUGH * best);
  const chosen = sizes.indexOf(settings.maxSequences);
  const own = sweep[chosen];
  const errors = { tokens: off(predicted.tokensPerSecond, own.tokensPerSecond), p95: off(predicted.answerMs.p95, own.p95Ms) };
  const holds = Math.max(...Object.values(errors).map(Math.abs)) <= MAX_OFF && Math.abs(chosen - enough) <= 1;
  results.push({ shape, load, predicted, considered, sweep, chosen: sizes[chosen], best: sizes[enough], errors, holds, steps });
  const { users, promptTokens, answerTokens } = load;
  console.log(
    [
      `${shape}, ${users} × ${promptTokens}+${answerTokens}`.padEnd(30),
      `tokens/s ${predicted.tokensPerSecond.toFixed(0)} → ${own.tokensPerSecond.toFixed(0)} (${percent(errors.tokens)})`.padEnd(32),
      `p95 ${predicted.answerMs.p95.toFixed(0)} → ${own.p95Ms.toFixed(0)} ms (${percent(errors.p95)})`.padEnd(32),
      `at once ${sizes[chosen]}, sweep ${sizes[enough]}, fastest ${fastest}`.padEnd(36),
      holds ? "holds" : "OFF",
    ].join(" "),
  );
}
const machine = { cpu: cpus()[0].model, cores: cpus().length, node: process.version, loadBefore: before, loadAfter: loadavg()[0] };
console.log(`${machine.cpu}, ${machine.cores} cores; load of the machine before: ${before.toFixed(2)}`);
const date = new Date().toISOString();
const file = new URL(`results/${date.slice(0, 10)}-advice.json`, import.meta.url);
if (!values.quick) await writeFile(file, `${JSON.stringify({ date, machine, duration, results })}\n`);
if (results.some(({ holds }) => !holds)) process.exitCode = 1;
