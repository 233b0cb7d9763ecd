import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { fileURLToPath } from "node:url";
import { diff } from "../../src/bench/diff.ts";
import { type BenchReport, MATRICES } from "../../src/bench/report.ts";
import { jitter, percentile, spread } from "../../src/bench/stats.ts";

const cli = fileURLToPath(new URL("../../dist/cli.js", import.meta.url));

function run(...args: string[]): Promise<{ status: number; stdout: string; stderr: string }> {
  return new Promise((resolve) => {
    execFile(process.execPath, [cli, ...args], (error, stdout, stderr) =>
      resolve({ status: error ? Number(error.code) : 0, stdout, stderr }),
    );
  });
}

async function bench(...args: string[]): Promise<BenchReport> {
  const { status, stdout, stderr } = await run("bench", ...args, "--json");
  assert.equal(status, 0, stdout + stderr);
  return JSON.parse(stdout);
}

const small = ["--prompt-tokens", "16", "--decode", "8", "--repeat", "2", "--warmup", "1", "--no-roofline"];

/** Facts that no load on the machine changes. */
test("a step reads the packed weights once, however many conversations it serves, and memory does not grow", async () => {
  for (const threads of ["1", "2"]) {
    for (const batch of [1, 3]) {
      const one = await bench(
        "--shape",
        "fairy",
        ...small,
        "--threads",
        threads,
        "--batch",
        String(batch),
        "--profile",
      );
      const { weights } = one.profile ? await memory() : { weights: 0 };
      assert.equal(one.decode.bytesPerStep, weights, "all that is packed, the tied embedding as the head");
      assert.equal(one.decode.bytesPerToken, weights / batch);
      assert.equal(one.memory.grownBytes, 0);

      const { hidden, ffn, heads, kvHeads, headSize, vocab, layers } = one.model.config;
      const kv = kvHeads * headSize;
      const products: Record<string, number> = {
        qkv: layers * hidden * (heads * headSize + 2 * kv),
        output: layers * hidden * heads * headSize,
        gate_up: layers * hidden * 2 * ffn,
        down: layers * hidden * ffn,
        head: hidden * vocab,
      };
      const rows = one.profile!.decode.filter(({ operation }) => MATRICES.includes(operation));
      assert.equal(rows.length, MATRICES.length);
      for (const { operation, calls, ms, gmacPerSecond } of rows) {
        assert.equal(calls, one.settings.decode * (operation === "head" ? 1 : layers));
        const expected = products[operation]! * batch * one.settings.decode;
        assert.ok(Math.abs((gmacPerSecond * 1e6 * ms) / expected - 1) < 1e-6, operation);
      }
      const total = rows.reduce((sum, { bytes }) => sum + bytes, 0);
      assert.equal(total, weights * one.settings.decode, "and every byte of them in one operation");
    }
  }
});

/** What `info` says of the same model. */
async function memory(): Promise<{ weights: number }> {
  const { synthetic } = await import("../../src/bench/synthetic.ts");
  const { load } = await import("ternlight");
  const model = await load(synthetic({ shape: "fairy" }), { threads: 1 });
  await model.close();
  // Besides matrices the engine keeps norms, as f32.
  const norms = model.info.tensors.filter(({ type }) => type === "F32");
  return { weights: model.info.memory.weights - norms.reduce((sum, { bytes }) => sum + bytes, 0) };
}

test("the demo model is measured, and the machine with it", async () => {
  const report = await bench("ternlight-demo", "--repeat", "2", "--decode", "16", "--ctx", "40");
  assert.equal(report.model.source, "ternlight-demo");
  assert.deepEqual(report.settings, { prompt: 128, decode: 16, batch: 1, ctx: 40, warmup: 1, repeat: 2 });
  assert.equal(report.endToEnd, null, "an answer with a past is none that the API gives");
  for (const { median, least, most, runs } of [report.prefill.tokensPerSecond, report.decode.tokensPerSecond]) {
    assert.ok(0 < least && least <= median && median <= most && runs.length === 2);
  }
  const { p50, p95, p99 } = report.decode.stepMs;
  assert.ok(0 < p50 && p50 <= p95 && p95 <= p99);
  const { roofline, ratios } = report;
  assert.deepEqual(
    roofline!.read.map(({ streams }) => streams),
    [1, 2, 8],
  );
  assert.ok(roofline!.gbPerSecond > 0.1 && roofline!.gmacPerSecond > 1);
  assert.ok(Math.abs(ratios!.decodeToRead * roofline!.gbPerSecond - report.decode.gbPerSecond) < 1e-9);
  assert.match(report.machine.runtime, /^Node \d+/);
  assert.ok(report.memory.peakRssBytes! > report.memory.wasmBytes);
});

test("a trace names each matrix, what it is packed as, and the numbers that it meets", async () => {
  const report = await bench("--shape", "fairy,layers=2", "--type", "tq2_0,ffn_down=q4_0", ...small, "--trace");
  const { tokens, prefill, decode } = report.trace!;
  assert.equal(tokens, 16);
  const { hidden, ffn, vocab } = report.model.config;
  const layer = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"];
  const names = [0, 1].flatMap((number) => layer.map((name) => `blk.${number}.${name}`));
  for (const rows of [prefill, decode]) {
    assert.deepEqual(
      rows.map(({ name }) => name),
      [...names, "output"],
    );
    for (const { name, input, output } of rows) {
      for (const { min, max, rms, nan } of [input, output]) {
        assert.ok(min < max && 0 < rms && rms <= Math.max(-min, max) && nan === 0, name);
      }
      // A norm stands before each of these, whose weights are about 1.
      if (/attn_[qkv]|gate|up/.test(name)) assert.ok(Math.abs(input.rms - 1) < 0.1, `${name}: ${input.rms}`);
    }
  }
  const packed = (name: string) => {
    const { rows, cols, bits, scales, activations } = decode.find((row) => row.name === name)!;
    return { rows, cols, bits, scales, activations };
  };
  assert.deepEqual(packed("blk.1.ffn_up"), {
    rows: ffn,
    cols: hidden,
    bits: 2,
    scales: "one a row",
    activations: "int8",
  });
  assert.deepEqual(packed("blk.0.ffn_down"), {
    rows: hidden,
    cols: ffn,
    bits: 4,
    scales: "f16 for 32",
    activations: "int14",
  });
  assert.deepEqual(packed("output"), {
    rows: vocab,
    cols: hidden,
    bits: 6,
    scales: "8 bits for 16",
    activations: "int14",
  });
});

test("people get tables", async () => {
  const { stdout, status } = await run(
    "bench",
    "--shape",
    "fairy,layers=2",
    ...small,
    "--profile",
    "--trace",
    "--threads",
    "1",
  );
  assert.equal(status, 0);
  for (const line of [
    /^ +pp16 .* tokens\/s .* in 2 runs$/m,
    /^ +tg8 /m,
    /^ +end to end /m,
    /^prefill of 16$/m,
    /^a prompt of 16 tokens$/m,
    /^ +blk\.1\.ffn_gate +768 +256 +2 +one a row +int8 +-[\d.]+ /m,
    /^ +gate_up /m,
  ]) {
    assert.match(stdout, line);
  }
});

test("what cannot be measured is refused", async () => {
  const cases: [string[], number, RegExp][] = [
    [[], 2, /give either MODEL or --shape/],
    [["ternlight-demo", "--shape", "fairy"], 2, /give either/],
    [["ternlight-demo", "--type", "q8_0"], 2, /belong to --shape/],
    [["--shape", "fairy", "--repeat", "0"], 2, /--repeat must be an integer from 1/],
    [["--shape", "fairy", "--prompt-tokens", "x"], 2, /--prompt-tokens must be an integer/],
    [["--shape", "huge"], 2, /shape must be/],
    [["no-such-file.gguf"], 1, /NotFound/],
    [["diff", "a.json"], 2, /B\.json is missing/],
    [["diff", "a.json", "b.json"], 1, /NotFound/],
  ];
  await Promise.all(
    cases.map(async ([args, status, message]) => {
      const found = await run("bench", ...args);
      assert.equal(found.status, status, `${args}: ${found.stderr}`);
      assert.match(found.stderr, message);
    }),
  );
});

test("diff tells a loss from noise, by its exit status too", async (context) => {
  const a = await bench("--shape", "fairy,layers=1", ...small, "--threads", "1");
  const faster = { runs: [90, 100, 110] };
  const b = (runs: number[], bytes = a.decode.bytesPerStep) => ({
    ...a,
    decode: { ...a.decode, tokensPerSecond: spread(runs), bytesPerStep: bytes },
  });
  const before = b(faster.runs);
  const slower = (after: BenchReport) =>
    diff(before, after)
      .rows.filter(({ slower }) => slower)
      .map(({ what }) => what);
  assert.deepEqual(slower(b([91, 101, 111])), []);
  assert.deepEqual(slower(b([92, 91, 90])), [], "9 is within 10 and 1");
  assert.deepEqual(slower(b([89, 88, 87])), ["decode tokens/s"], "12 is not");
  assert.deepEqual(slower(b(faster.runs, a.decode.bytesPerStep + 1)), ["bytes a step"]);

  const file = await files(context, { "a.json": before, "same.json": b([91, 101, 111]), "slow.json": b([50, 51, 52]) });
  const exits = async (other: string) => (await run("bench", "diff", file("a.json"), file(other))).status;
  assert.deepEqual(await Promise.all(["same.json", "slow.json"].map(exits)), [0, 1]);
  const { stdout } = await run("bench", "diff", file("a.json"), file("slow.json"), "--json");
  assert.equal(JSON.parse(stdout).slower, true);
});

test("what was not measured alike is not compared", async (context) => {
  const a = await bench("--shape", "fairy,layers=1", ...small, "--threads", "1");
  const refused = (b: BenchReport, pattern: RegExp) => assert.throws(() => diff(a, b), pattern);
  refused({ ...a, settings: { ...a.settings, decode: 99 } }, /settings differ/);
  refused({ ...a, model: { ...a.model, architecture: "llama" } }, /model differ/);
  refused({ ...a, settings: { ...a.settings, repeat: 1 } }, /differ|noise/);
  assert.deepEqual(diff(a, { ...a, engine: { ...a.engine, threads: 7 } }).notes, ["threads: 1 and 7"]);
  const file = await files(context, { "a.json": a, "none.json": {} });
  const { status, stderr } = await run("bench", "diff", file("a.json"), file("none.json"));
  assert.equal(status, 1);
  assert.match(stderr, /none\.json is no report/);
});

test("percentiles lie between their neighbours", () => {
  assert.deepEqual(
    [0, 25, 50, 100].map((p) => percentile([4, 1, 3, 2, 5], p)),
    [1, 2, 3, 5],
  );
  assert.equal(percentile([1, 2], 75), 1.75);
  assert.equal(percentile([7], 99), 7);
  assert.equal(jitter([1, 3, 2]), 1.5);
  assert.equal(jitter([1]), 0);
});

async function files(context: TestContext, contents: Record<string, unknown>): Promise<(name: string) => string> {
  const folder = await mkdtemp(path.join(tmpdir(), "ternlight-"));
  context.after(() => rm(folder, { recursive: true, force: true }));
  const write = ([name, value]: [string, unknown]) => writeFile(path.join(folder, name), JSON.stringify(value));
  await Promise.all(Object.entries(contents).map(write));
  return (name) => path.join(folder, name);
}
