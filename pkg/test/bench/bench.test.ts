import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { fileURLToPath } from "node:url";
import { type Diff, diff } from "../../src/bench/diff.ts";
import { type BenchReport, MATRICES, type SweepReport } from "../../src/bench/report.ts";
import { jitter, percentile, spread } from "../../src/bench/stats.ts";

const cli = fileURLToPath(new URL("../../dist/cli.js", import.meta.url));

function run(
  ...given: (string | Record<string, string>)[]
): Promise<{ status: number; stdout: string; stderr: string }> {
  const args = given.filter((one) => typeof one === "string");
  const env = Object.assign({}, process.env, ...given.filter((one) => typeof one === "object"));
  return new Promise((resolve) => {
    execFile(process.execPath, [cli, ...args], { env }, (error, stdout, stderr) =>
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

test("a trace times each matrix and each layer, and what reading alone would take", async () => {
  const shape = "fairy,layers=3,ffn=1536";
  const report = await bench("--shape", shape, "--type", "tq2_0,ffn_down=q8_0", ...small, "--trace", "--threads", "1");
  const { decode, matrices, layers } = report.trace!;
  assert.deepEqual(
    matrices.map(({ name }) => name),
    decode.map(({ name }) => name),
  );
  assert.equal(
    matrices.reduce((sum, { bytes }) => sum + bytes, 0),
    report.decode.bytesPerStep,
    "every byte that a step reads",
  );
  for (const { name, bytes, ms, readMs, unpackShare, gbPerSecond } of matrices) {
    assert.ok(ms > 0 && readMs > 0 && 0 <= unpackShare! && unpackShare! < 1, name);
    assert.ok(
      Math.abs(unpackShare! - Math.max(0, 1 - readMs / ms)) < 1e-9 && Math.abs(gbPerSecond * ms * 1e6 - bytes) < 1,
      name,
    );
  }
  // Whatever the machine does besides: the head is four times as large as any other matrix.
  const largest = matrices.reduce((a, b) => (a.ms > b.ms ? a : b));
  assert.equal(largest.name, "output");

  const inside = ["qkv", "rope", "attend", "output", "gate_up", "down"];
  for (const phase of [layers.prefill, layers.decode]) {
    assert.deepEqual(
      phase.map(({ layer }) => layer),
      [0, 1, 2, null],
    );
    for (const { layer, operations, ms } of phase) {
      const expected = layer === null ? ["schedule", "embed", "head", "sample", "settle"] : inside;
      assert.deepEqual(Object.keys(operations).sort(), expected.sort(), `${layer}`);
      const total = Object.values(operations).reduce((sum, operation) => sum + operation.ms, 0);
      assert.ok(ms > 0 && Math.abs(total - ms) < 1e-9);
    }
  }
  const weights = (phase: typeof layers.decode) =>
    phase.flatMap(({ operations }) => MATRICES.map((name) => operations[name]?.bytes ?? 0)).reduce((a, b) => a + b, 0);
  assert.equal(weights(layers.decode), report.decode.bytesPerStep, "for one token");
  assert.equal(weights(layers.prefill), report.decode.bytesPerStep, "for one prompt");
});

test("a sweep measures every pair once, and names the knees", async () => {
  const { status, stdout, stderr } = await run(
    ...["bench", "--shape", "fairy,layers=1", ...small, "--threads", "1"],
    ...["--batch", "4,1,2,4", "--ctx", "0,64", "--json"],
  );
  assert.equal(status, 0, stdout + stderr);
  const { sweep, reports, batchKnees, ctxKnees }: SweepReport = JSON.parse(stdout);
  assert.deepEqual(sweep, { batch: [1, 2, 4], ctx: [0, 64] });
  assert.deepEqual(
    reports.map(({ settings }) => [settings.ctx, settings.batch]),
    [0, 64].flatMap((ctx) => [1, 2, 4].map((batch) => [ctx, batch])),
  );
  for (const { settings, decode, endToEnd, model } of reports) {
    assert.equal(decode.bytesPerToken, model.weightBytes / settings.batch);
    assert.equal(endToEnd === null, settings.batch > 1 || settings.ctx > 0);
  }
  assert.deepEqual(
    batchKnees.map(({ ctx }) => ctx),
    [0, 64],
  );
  assert.deepEqual(
    ctxKnees.map(({ batch }) => batch),
    [1, 2, 4],
  );
  const text = await run("bench", "--shape", "fairy,layers=1", ...small, "--threads", "1", "--batch", "1,2,8");
  assert.match(text.stdout, /^ +8 +0 +[\d,.]+ +[\d,.]+ /m);
  assert.match(text.stdout, /knee/);
});

test("the use of the process is told for decoding alone", async () => {
  const { process: use, settings, engine } = await bench("--shape", "138m,layers=4", ...small, "--threads", "1");
  assert.equal(use!.tokens, settings.repeat * settings.decode);
  assert.ok(use!.seconds > 0 && use!.cpuCores > 0.2, JSON.stringify(use));
  assert.ok(Math.abs(use!.cpuShare - use!.cpuCores / engine.threads) < 1e-9);
  assert.ok(use!.minorFaultsPerToken >= 0 && use!.majorFaultsPerToken >= 0);
  assert.ok(use!.joulesPerToken === null || use!.joulesPerToken > 0);
});

test("a long run compares its ends, and exits with 1 when memory grows", async (context) => {
  const long = [
    "bench",
    "--shape",
    "fairy,layers=1",
    ...small,
    "--threads",
    "1",
    "--seconds",
    "3",
    "--max-growth",
    "25",
  ];
  const { status, stdout, stderr } = await run(...long, "--json");
  assert.equal(status, 0, stderr);
  const { overTime }: BenchReport = JSON.parse(stdout);
  const { seconds, spans, first, last, speed, growth } = overTime!;
  assert.ok(seconds >= 3, `${seconds} s`);
  // A second in which a busy machine ends no run has no span.
  for (const { from, to, tokens } of spans) assert.ok([0, 1, 2].includes(from) && to === from + 1 && tokens > 0);
  assert.ok(spans.length > 0 && new Set(spans.map(({ from }) => from)).size === spans.length);
  assert.ok(first.tokens > 0 && last.tokens > 0 && speed > 0.2);
  assert.equal(growth.wasm, 0);

  const leak = "setInterval(() => (globalThis.kept ??= []).push(Buffer.alloc(1 << 22, 1)), 20).unref();";
  const file = await files(context, {});
  await writeFile(file("leak.mjs"), leak);
  const leaking = await run(...long, { NODE_OPTIONS: `--import=${file("leak.mjs")}` });
  assert.equal(leaking.status, 1, leaking.stdout);
  assert.match(leaking.stderr, /memory grew by more than 25 %/);
  assert.match(leaking.stdout, /last ÷ first: .* the process [1-9]/);
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
    /^ +decoding uses +[\d.]+ cores, .* page faults a token/m,
    /^the time of each matrix alone, with one token$/m,
    /^ +blk\.1\.ffn_down +[\d.]+ kB +[\d.]+ +[\d.]+ +[\d.]+ +[\d.]+ %$/m,
    /^milliseconds of each layer, a token after it$/m,
    /^ +outside /m,
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
    [["--shape", "fairy", "--batch", "1,0"], 2, /--batch must be an integer from 1 to 4096, not 0/],
    [["--shape", "fairy", "--ctx", "0,,5"], 2, /--ctx must be an integer from 0/],
    [["--shape", "fairy", "--batch", "1,2", "--trace"], 2, /--trace takes one batch and one past/],
    [["--shape", "fairy", "--batch", "1,2", "--seconds", "5"], 2, /--seconds takes one batch/],
    [["--shape", "fairy", "--max-growth", "5"], 2, /--max-growth needs --seconds/],
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

  const first = (runs: number[]) => ({ ...before, endToEnd: { ...a.endToEnd!, firstTokenMs: spread(runs) } });
  const tails = (p95: number[], p99: number[]) => ({
    ...before,
    decode: { ...before.decode, tailMs: { p95: spread(p95), p99: spread(p99) } },
  });
  const memory = (wasmBytes: number, peakRssBytes: number | null) => ({
    ...before,
    memory: { ...a.memory, wasmBytes, peakRssBytes },
  });
  const pairs: [string, BenchReport, BenchReport, BenchReport][] = [
    ["first token, ms", first([10, 11]), first([10.5, 12]), first([13, 14])],
    ["a step, p95, ms", tails([5, 6], [9, 9]), tails([5.5, 6.3], [9, 9]), tails([7, 7.5], [9, 9])],
    ["a step, p99, ms", tails([5, 6], [9, 10]), tails([5, 6], [9.9, 9.9]), tails([5, 6], [12, 13])],
    ["wasm memory, bytes", memory(1e6, null), memory(1e6, null), memory(1.02e6, null)],
    ["process, bytes at most", memory(1e6, 1e8), memory(1e6, 1.04e8), memory(1e6, 1.06e8)],
    ["load, ms", { ...before, loadMs: 100 }, { ...before, loadMs: 120 }, { ...before, loadMs: 130 }],
  ];
  for (const [what, one, like, worse] of pairs) {
    const found = (other: BenchReport) => diff(one, other).rows.filter(({ slower }) => slower);
    assert.deepEqual(found(like), [], `${what}: within the noise`);
    assert.deepEqual(
      found(worse).map((row) => row.what),
      [what],
    );
    assert.equal(diff(worse, one).slower, false, `${what}: better is not worse`);
  }
  // Earlier reports have less.
  const { tailMs: _, ...decode } = before.decode;
  const earlier = { ...before, decode, endToEnd: null } as unknown as BenchReport;
  const { rows, notes } = diff(earlier, before);
  assert.ok(!rows.some(({ what }) => /p95|first token/.test(what)));
  assert.ok(
    notes.includes("a step, p95, ms: one report has none") && notes.includes("first token, ms: one report has none"),
  );

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
  const limits = { limits: [{ what: "loadMs", most: 1 }] };
  const file = await files(context, {
    "a.json": a,
    "none.json": {},
    "sweep.json": sweepOf([a, a]),
    "limits.json": limits,
  });
  const several = await run("bench", "check", file("limits.json"), file("sweep.json"));
  assert.equal(several.status, 1);
  assert.match(several.stderr, /sweep\.json: expected a report of one batch and one past, got a sweep: take one/);
  const { status, stderr } = await run("bench", "diff", file("a.json"), file("none.json"));
  assert.equal(status, 1);
  assert.match(stderr, /none\.json is no report/);
});

const sweepOf = (reports: BenchReport[]) => ({ ...reports[0]!, sweep: {}, reports, batchKnees: [], ctxKnees: [] });

test("two sweeps are compared size by size", async (context) => {
  const a = await bench("--shape", "fairy,layers=1", ...small, "--threads", "1");
  const of = (batch: number, ctx: number, runs = [90, 100, 110]) => ({
    ...a,
    settings: { ...a.settings, batch, ctx },
    decode: { ...a.decode, tokensPerSecond: spread(runs) },
  });
  const other = { ...of(1, 0), engine: { ...a.engine, threads: 7 } };
  const file = await files(context, {
    "a.json": sweepOf([of(1, 0), of(4, 0), of(8, 0)]),
    "b.json": sweepOf([{ ...of(4, 0, [50, 51, 52]), engine: other.engine }, other, of(1, 64)]),
    "alike.json": sweepOf([of(1, 0), of(4, 0, [91, 101, 111])]),
    "one.json": of(4, 0),
    "apart.json": of(2, 0),
  });
  const compared = async (one: string, two: string) => {
    const { status, stdout, stderr } = await run("bench", "diff", file(one), file(two), "--json");
    return { status, stderr, ...(JSON.parse(stdout) as Diff) };
  };
  const { status, rows, notes } = await compared("a.json", "b.json");
  assert.equal(status, 1);
  assert.deepEqual(
    rows.filter(({ slower }) => slower).map(({ what, a, b }) => [what, a, b]),
    [["batch 4, past 0: decode tokens/s", 100, 51]],
  );
  assert.ok(rows.some(({ what }) => what === "batch 1, past 0: decode tokens/s"));
  assert.deepEqual(notes, [
    "threads: 1 and 7",
    "batch 8, past 0: one report has none",
    "batch 1, past 64: one report has none",
  ]);
  assert.equal((await compared("a.json", "alike.json")).status, 0);
  const single = await compared("one.json", "b.json");
  assert.ok(single.rows.length > 0 && single.rows.every(({ what }) => what.startsWith("batch 4, past 0: ")));
  assert.equal(single.status, 1);
  const apart = await run("bench", "diff", file("apart.json"), file("alike.json"));
  assert.match(apart.stderr, /share no size: batch 2, past 0 and batch 1, past 0; batch 4, past 0/);
  const { stdout } = await run("bench", "diff", file("a.json"), file("b.json"));
  assert.match(stdout, /batch 4, past 0: decode tokens\/s .* worse/);
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
