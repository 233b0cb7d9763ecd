import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { type Budget, check, parseBudget } from "../../src/bench/budget.ts";
import type { BenchReport } from "../../src/bench/report.ts";

const root = fileURLToPath(new URL("../../../", import.meta.url));
const own = path.join(root, "benches", "budget.json");

function run(...args: string[]): Promise<{ status: number; stdout: string; stderr: string }> {
  return new Promise((resolve) => {
    execFile(process.execPath, [path.join(root, "pkg/dist/cli.js"), ...args], (error, stdout, stderr) =>
      resolve({ status: error ? Number(error.code) : 0, stdout, stderr }),
    );
  });
}

const spread = (median: number) => ({ median, least: median, most: median, runs: [median] });
const report = {
  decode: { tokensPerSecond: spread(40) },
  endToEnd: { tokensPerSecond: spread(36), firstTokenMs: spread(50) },
  roofline: { gbPerSecond: 20, gmacPerSecond: 100 },
  ratios: { decodeToRead: 0.5, decodeMatricesToRead: null },
  memory: { grownBytes: 0 },
} as unknown as BenchReport;

test("limits hold for numbers, medians and quotients", () => {
  const met = (...limits: Budget["limits"]) => check(report, limits).map(({ found, met }) => [found, met]);
  assert.deepEqual(met({ what: "ratios.decodeToRead", least: 0.5 }), [[0.5, true]]);
  assert.deepEqual(met({ what: "ratios.decodeToRead", least: 0.51 }), [[0.5, false]]);
  assert.deepEqual(met({ what: "memory.grownBytes", most: 0 }), [[0, true]]);
  assert.deepEqual(met({ what: "endToEnd.tokensPerSecond", per: "decode.tokensPerSecond", least: 0.8, most: 1 }), [
    [0.9, true],
  ]);
  // 10⁹ products take 10 ms here, 10⁹ bytes 50.
  assert.deepEqual(met({ what: "endToEnd.firstTokenMs", per: "calibration.multiplyMs", most: 4 }), [[5, false]]);
  assert.deepEqual(met({ what: "endToEnd.firstTokenMs", per: "calibration.readMs", most: 1 }), [[1, true]]);
});

test("a number that is not there is named, with those that are", () => {
  for (const [what, expected] of [
    ["ratios.decodeToWrite", /no number ratios\.decodeToWrite: ratios holds decodeToRead, decodeMatricesToRead/],
    ["speed", /no number speed: it holds decode, endToEnd/],
    ["ratios", /no number ratios: ratios holds decodeToRead/],
    ["ratios.decodeMatricesToRead", /ratios\.decodeMatricesToRead holds a number/],
    ["memory.constructor", /no number memory\.constructor/],
  ] as const) {
    assert.throws(() => check(report, [{ what, least: 0 }]), expected);
  }
});

test("nothing is measured per 0", () => {
  for (const least of [0, 1e9]) {
    const limit = { what: "ratios.decodeToRead", per: "memory.grownBytes", least };
    assert.throws(() => check(report, [limit]), /per memory\.grownBytes: expected a number other than 0, got 0/);
  }
});

test("a budget that says nothing, or what nobody knows, is refused", () => {
  const cases: [string, RegExp][] = [
    ["{", /b\.json must be JSON/],
    ["[]", /list of limits/],
    ['{"limits":[]}', /list of limits/],
    ['{"limits":[{"what":"loadMs"}]}', /with a bound/],
    ['{"limits":[{"what":"loadMs","most":"5"}]}', /with a bound/],
    ['{"limits":[{"what":"loadMs","most":5,"lest":1}]}', /with a bound/],
    ['{"limits":[null]}', /with a bound/],
    ['{"limits":[{"what":"loadMs","most":5}],"thread":1}', /must be model, shape, .* not thread/],
    ['{"limits":[{"what":"loadMs","most":5}],"options":{"batch":0}}', /batch must be an integer from 1/],
    ['{"limits":[{"what":"loadMs","most":5}],"load":{"threads":"two"}}', /threads must be/],
  ];
  for (const [text, expected] of cases) assert.throws(() => parseBudget("b.json", text), expected, text);
});

/** The budget of this repository: a quarter of what an idle machine reaches. */
test("what was built keeps the budget, and no build keeps one that is too much", async (context) => {
  const kept = await run("bench", "check", own, "--json");
  context.diagnostic(kept.stdout);
  assert.equal(kept.status, 0, kept.stdout + kept.stderr);
  assert.equal(JSON.parse(kept.stdout).met, true);

  const folder = await mkdtemp(path.join(tmpdir(), "ternlight-"));
  context.after(() => rm(folder, { recursive: true, force: true }));
  const budget: Budget = JSON.parse(await readFile(own, "utf8"));
  const limits = budget.limits.map((limit) => (limit.least ? { ...limit, least: 1000 * limit.least } : limit));
  const file = path.join(folder, "budget.json");
  const quick = { ...budget.options, repeat: 1, warmup: 0 };
  await writeFile(file, JSON.stringify({ ...budget, options: quick, limits }));
  const missed = await run("bench", "check", file);
  assert.equal(missed.status, 1, missed.stdout + missed.stderr);
  assert.match(missed.stdout, /ratios\.decodeToRead .* missed/);
});

test("a report is checked without measuring again, and the model must be named", async (context) => {
  const folder = await mkdtemp(path.join(tmpdir(), "ternlight-"));
  context.after(() => rm(folder, { recursive: true, force: true }));
  const [file, budget] = [path.join(folder, "a.json"), path.join(folder, "budget.json")];
  const full = { ...report, prefill: { tokensPerSecond: spread(60) } };
  await writeFile(file, JSON.stringify(full));
  const write = (least: number) =>
    writeFile(budget, JSON.stringify({ limits: [{ what: "ratios.decodeToRead", least }] }));
  await write(0.4);
  assert.equal((await run("bench", "check", budget, file)).status, 0);
  await write(0.6);
  const { status, stdout } = await run("bench", "check", budget, file, "--json");
  assert.equal(status, 1);
  assert.deepEqual(JSON.parse(stdout), {
    met: false,
    attempts: 1,
    limits: [{ what: "ratios.decodeToRead", least: 0.6, found: 0.5, met: false }],
  });
  const without = await run("bench", "check", budget);
  assert.equal(without.status, 1);
  assert.match(without.stderr, /must name either a model or a shape/);
});
