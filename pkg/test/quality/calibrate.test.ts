/** Activations by matrix: maps at a load, and how they are chosen. */

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import path from "node:path";
import { test } from "node:test";
import { inspect, load } from "ternlight";
import { calibrate, quality } from "ternlight/quality";
import { entropyOf, mapOf, precisionOf } from "../../src/quality/calibrate.ts";
import type { ActivationMap } from "../../src/types/index.ts";
import { done, json, start, ternlight } from "../cli/support/ternlight.ts";
import { contents } from "../convert/support/convert.ts";
import { folderOf, goldenFile } from "../source/support/models.ts";
import { bytesOf, demoText, rebuilt, trained } from "./support/craft.ts";

const demo = new URL("../../models/ternlight-demo/", import.meta.url);
const KEY = "ternlight.activations";
const ONE = { threads: 1 } as const;

/** Paragraphs of some hundred words. */
const texts = (count: number) => {
  const text = demoText();
  return Array.from({ length: count }, (_, i) => text.slice(700 * i, 700 * (i + 1)));
};

async function logitsOf(
  source: Parameters<typeof load>[0],
  options: Parameters<typeof load>[1],
): Promise<Float32Array[]> {
  const model = await load(source, options);
  try {
    return await model.logits([1, 2, 3, 5, 8, 13, 21, 34], { all: true });
  } finally {
    await model.close();
  }
}

test("a map has the same bits in every build, and in a file and a checkpoint", async () => {
  const activations: ActivationMap = { "blk.0-1": "int4", "blk.3.attn_q": "int2", "blk.4.ffn_down": "int14" };
  const expected = await logitsOf(demo, { ...ONE, activations });
  assert.notDeepEqual(expected, await logitsOf(demo, ONE));
  for (const options of [
    { threads: 2 },
    { threads: 1, flavour: "simd128" },
    { threads: 2, flavour: "simd128" },
  ] as const) {
    assert.deepEqual(await logitsOf(demo, { ...options, activations }), expected);
  }
  assert.deepEqual(await logitsOf(trained(), { ...ONE, activations }), expected);
});

test("a map of the header is in force until the option says otherwise", async () => {
  const map: ActivationMap = { "blk.*.ffn_down": "int4" };
  const file = rebuilt(trained(), { keys: { [KEY]: JSON.stringify(map) } });
  const plain = await logitsOf(file, { ...ONE, activations: {} });
  assert.deepEqual(plain, await logitsOf(trained(), ONE));
  const mapped = await logitsOf(file, ONE);
  assert.deepEqual(mapped, await logitsOf(trained(), { ...ONE, activations: map }));
  assert.deepEqual(mapped, await logitsOf(file, { ...ONE, activations: "auto" }));
  assert.deepEqual(
    await logitsOf(file, { ...ONE, activations: "int14" }),
    await logitsOf(trained(), { ...ONE, activations: "int14" }),
  );
  const model = await load(file, ONE);
  assert.deepEqual([model.info.activations, model.info.activationMap], ["by matrix", map]);
  await model.close();
  const other = await load(file, { ...ONE, activations: { "blk.0": "int2" } });
  assert.deepEqual(other.info.activationMap, { "blk.0": "int2" });
  await other.close();
  const told = await inspect(file);
  assert.deepEqual([told.activations, told.activationMap], ["by matrix", map]);
  assert.equal((await inspect(file, { activations: {} })).activationMap, undefined);
});

test("a map that does not fit is refused before weights are read", async () => {
  const refused = (code: string, key: string) => (error: { code: string; detail: { key?: string } }) =>
    error.code === code && error.detail.key === key;
  await assert.rejects(load(demo, { ...ONE, activations: { "blk.9": "int4" } }), refused("InvalidArgument", "blk.9"));
  const wrong = { "blk.0.nothing": "int4" } as const;
  await assert.rejects(load(demo, { ...ONE, activations: wrong }), refused("InvalidArgument", "blk.0.nothing"));
  for (const text of ["no JSON", "[1]", "null", "3"]) {
    await assert.rejects(load(rebuilt(trained(), { keys: { [KEY]: text } }), ONE), refused("BadHeader", KEY));
  }
  await assert.rejects(load(demo, { ...ONE, activations: "int4" as "int8" }), /or a map/);
});

test("entropy, thresholds and ranges of layers", () => {
  assert.equal(entropyOf([4, 4, 4, 4]), 2);
  assert.equal(entropyOf([0, 7, 0]), 0);
  assert.ok(Math.abs(entropyOf([1, 3]) - (2 - 0.75 * Math.log2(3))) < 1e-12);
  assert.deepEqual(
    [2.2, 2.1, 1.06, 1.05, 0].map((bits) => precisionOf(bits, 2.1)),
    ["int8", "int4", "int4", "int2", "int2"],
  );
  const unit = (...names: string[]) => ({ matrices: names.map((name) => ({ name })) });
  const map = mapOf(
    new Map([
      [unit("blk.0.attn_q", "blk.0.attn_k"), "int4"],
      [unit("blk.1.attn_q", "blk.1.attn_k"), "int4"],
      [unit("blk.3.attn_q"), "int4"],
      [unit("blk.4.attn_q"), "int2"],
    ]),
  );
  assert.deepEqual(map, {
    "blk.0-1.attn_q": "int4",
    "blk.3.attn_q": "int4",
    "blk.4.attn_q": "int2",
    "blk.0-1.attn_k": "int4",
  });
});

test("inputs whose codes have few bits become narrow, and the report says what that costs", async () => {
  const options = { texts: texts(8), tokens: 256, samples: 8, load: ONE };
  const { map, matrices, report, by, file } = await calibrate(demo, { ...options, entropyThreshold: 4 });
  assert.deepEqual([by, file, matrices.length], ["entropy", null, 42]);
  for (const { name, trained, entropy, precision, min, max, rms } of matrices) {
    assert.equal(trained, "int8", name);
    assert.equal(precision, precisionOf(entropy, 4), name);
    assert.ok(entropy > 0 && entropy < 8 && min < 0 && max > 0 && rms > 0 && rms < Math.max(max, -min), name);
  }
  const of = (name: string) => matrices.find((matrix) => matrix.name === name)!;
  assert.equal(of("blk.2.attn_q").entropy, of("blk.2.attn_v").entropy);
  assert.equal(of("blk.2.ffn_gate").entropy, of("blk.2.ffn_up").entropy);
  const [before, after] = report.rows;
  assert.deepEqual([before!.activations, after!.activations], [{}, map]);
  assert.deepEqual([before!.kl, before!.memory], [0, after!.memory]);
  const { rows } = await quality(
    demo,
    texts(8)
      .filter((_, i) => i % 4 === 3)
      .join("\n"),
    {
      ...{ kv: ["auto"], activations: [map], tokens: 256, load: ONE },
    },
  );
  assert.deepEqual([rows[0]!.perplexity, rows[0]!.kl], [after!.perplexity, after!.kl]);
  // All that a threshold of no bits leaves is int8, which the model was trained for.
  const none = await calibrate(demo, { ...options, entropyThreshold: 0 });
  assert.ok(none.matrices.every(({ precision }) => precision === "int8"));
  assert.equal(none.report.rows[1]!.kl, 0);
});

test("within a budget the smallest losses are taken, and its end is measured", async () => {
  const memo = new Map<string, number>();
  const whole = trained();
  const options = { texts: texts(8), tokens: 128, samples: 2, load: ONE, memo };
  const loss = (map: object) => memo.get(`loss ${JSON.stringify(map)}`)!;
  const budgets = new Map<number, number>();
  for (const budget of [0, 2, 20]) {
    const { map, matrices, report, file } = await calibrate(whole, { ...options, budget, gguf: true });
    assert.ok(loss(map) - loss({}) <= Math.log1p(budget / 100), `${budget} %`);
    budgets.set(budget, matrices.filter(({ precision }) => precision !== "int8").length);
    for (const { losses } of matrices) assert.ok(losses.int4 !== undefined && losses.int2 !== undefined);
    assert.equal(report.rows.length, Object.keys(map).length > 0 ? 2 : 1);
    const [made, old] = [contents(await bytesOf(file!)), contents(whole)];
    assert.deepEqual(made.tensors, old.tensors);
    assert.equal(made.metadata.get(KEY), Object.keys(map).length > 0 ? JSON.stringify(map) : undefined);
  }
  assert.ok(budgets.get(0)! <= budgets.get(2)! && budgets.get(2)! < budgets.get(20)!, JSON.stringify([...budgets]));
  // What was measured is not measured again.
  const count = memo.size;
  const loads: string[] = [];
  await calibrate(whole, { ...options, budget: 20, onProgress: (what) => loads.push(what) });
  assert.equal(memo.size, count);
  assert.ok(loads.includes("losses"));
});

test("what is wrong is refused by name", async () => {
  const refused = (code: string) => (error: { code: string }) => error.code === code;
  await assert.rejects(calibrate(demo, { texts: ["a"] }), refused("BadValue"));
  await assert.rejects(calibrate(demo, { texts: texts(4), budget: -1 }), refused("InvalidArgument"));
  await assert.rejects(calibrate(demo, { texts: texts(4), samples: 0 }), refused("InvalidArgument"));
  await assert.rejects(
    calibrate(demo, { texts: texts(4), budget: 1, entropyThreshold: 2 }),
    refused("InvalidArgument"),
  );
  const floats = await goldenFile("gguf/llama_f32.F32.gguf");
  await assert.rejects(calibrate(floats, { texts: texts(4), samples: 1, load: ONE }), refused("UnsupportedSetting"));
});

test("what a map gains is said by the weights that it is for", async (context) => {
  const folder = await folderOf(context, {
    "data.txt": new TextEncoder().encode(demoText().slice(0, 2000)),
    "q8_0.gguf": await goldenFile("gguf/llama_bf16.Q8_0.gguf"),
    "tq2_0.gguf": await goldenFile("gguf/trilm_style.TQ2_0.gguf"),
  });
  const flags = [
    "--dataset",
    path.join(folder, "data.txt"),
    "--calibration-samples",
    "2",
    "--calibration-tokens",
    "32",
  ];
  const command = (model: string) => {
    return ["calibrate", path.join(folder, model), ...flags, "--output-dir", path.join(folder, `of ${model}`)];
  };
  const told = async (model: string) => (await done(...command(model))).stdout;
  const [bytes, trits] = await Promise.all([told("q8_0.gguf"), told("tq2_0.gguf")]);
  assert.match(bytes!, /Nothing is gained in memory;.*bench --activations int8 tells/);
  assert.match(trits!, /Weights of 1 and 2 bits are faster with these inputs than with int14/);
  // Each matrix is loaded with each precision then, so that the model is a small one.
  const within = [...command("tq2_0.gguf"), "--force", "--budget", "0.5 %"];
  const { stdout, stderr } = await start(within, [process.execPath, "--trace-wasm-code-gc"]).ended;
  assert.match(stdout, /by the loss of each matrix/, stderr);
  assert.match(stdout, /^ *matrix .* int8, nats +int4, nats +int2, nats/m);
  assert.doesNotMatch(stdout, /wasm-gc/, "V8 may end a process that frees wasm code");
});

test("the command writes the map and a copy, which loads take", async (context) => {
  const lines = texts(8).map((text) => JSON.stringify({ text }));
  const folder = await folderOf(context, { "data.jsonl": new TextEncoder().encode(lines.join("\n")) });
  const [out, copy] = [path.join(folder, "map"), path.join(folder, "mapped.gguf")];
  const flags = [
    "--dataset",
    path.join(folder, "data.jsonl"),
    "--calibration-samples",
    "4",
    "--calibration-tokens",
    "128",
  ];
  const command = ["calibrate", "ternlight-demo", ...flags, "--output-dir", out];
  const told = await json(...command, "--entropy-threshold", "5", "--output", copy);
  const file = path.join(out, "activations.json");
  assert.deepEqual([told.file, told.copy, told.matrices.length], [file, copy, 42]);
  const map = JSON.parse(await readFile(file, "utf8"));
  assert.equal(told.bytesAfter, (await readFile(copy)).length);
  assert.ok(told.bytesBefore < told.bytesAfter && told.bytesBefore + 8192 > told.bytesAfter);
  assert.deepEqual(map, told.map);
  assert.deepEqual((await json("inspect", copy)).activationMap, map);
  assert.deepEqual((await json("inspect", "ternlight-demo", "--activations", file)).activationMap, map);
  assert.deepEqual((await json("inspect", "ternlight-demo", "--activations", '{"blk.0":"int4"}')).activationMap, {
    "blk.0": "int4",
  });
  const again = await ternlight(...command);
  assert.equal(again.status, 1, "the map is there");
  const shown = await done(...command, "--force", "--entropy-threshold", "0", "--calibration-tokens", "64");
  assert.match(shown.stdout, /blk\.5\.ffn_down/);
  assert.match(shown.stdout, /^ *activations .* size$/m);
  assert.match(shown.stdout, /Nothing is/);
  assert.equal((await ternlight(...command, "--force", "--budget", "1", "--entropy-threshold", "2")).status, 2);
  assert.equal((await ternlight("calibrate", "ternlight-demo", ...flags)).status, 2);
  assert.equal((await ternlight(...command, "--force", "--activations", "int8")).status, 2);
  assert.equal((await ternlight("inspect", "ternlight-demo", "--activations", "none.json")).status, 1);
});
