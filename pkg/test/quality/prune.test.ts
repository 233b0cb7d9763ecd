/** Layers that are taken away: which, what is left, and how much better the choice is than chance. */

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import path from "node:path";
import { test } from "node:test";
import { load } from "ternlight";
import { prune } from "ternlight/quality";
import { Gguf } from "../../src/quality/gguf.ts";
import { toBlob } from "../../src/quality/new_gguf.ts";
import { withLayers } from "../../src/quality/prune.ts";
import { BlobSource } from "../../src/source/blob.ts";
import type { ActivationMap } from "../../src/types/index.ts";
import { failure, json, ternlight } from "../cli/support/ternlight.ts";
import { contents, I2_S } from "../convert/support/convert.ts";
import { safetensors } from "../convert/support/mlx.ts";
import { folderOf, goldenFile, goldenFolder, goldenPath } from "../source/support/models.ts";
import { json as asJson, type Files } from "../source/support/split.ts";
import { bytesOf, demoText, rebuilt, spoilt, trained } from "./support/craft.ts";

/** Paragraphs of some hundred words, every other one held out. */
function texts(): string[] {
  const lines = demoText().slice(0, 40_000).split("\n");
  const parts: string[] = [""];
  for (const line of lines) {
    if (parts.at(-1)!.length > 1500) parts.push("");
    parts[parts.length - 1] += `${line}\n`;
  }
  return parts;
}

const TOKENS = 256;

/** As the curve measures it: windows of the held-out texts' first tokens. */
async function perplexityOf(file: Uint8Array<ArrayBuffer>, layers: number[]): Promise<number> {
  const gguf = await Gguf.open([new BlobSource(new Blob([file]), "model")]);
  const model = await load(await toBlob(withLayers({ spec: { kind: "bytes", bytes: file } }, gguf, layers)), {
    threads: 1,
  });
  try {
    const ids: number[] = [];
    for (let i = 1; ids.length < TOKENS; i += 2)
      ids.push(...(await model.tokenize(texts()[i]!, { addSpecial: false })));
    let [sum, count] = [0, 0];
    for (const { logprob } of await model.promptLogprobs(ids.slice(0, TOKENS))) {
      sum -= logprob;
      count++;
    }
    return Math.exp(sum / count);
  } finally {
    await model.close();
  }
}

test("every way to choose beats ten random choices at every number of layers, by their mean and by that of logarithms", async () => {
  const file = trained();
  const known = new Map<string, number>();
  let seed = 1;
  const random = (below: number) => {
    seed = (seed * 48_271) % 2_147_483_647;
    return seed % below;
  };
  const chance = new Map<number, { mean: number; ofLogarithms: number }>();
  for (let layers = 1; layers < 6; layers++) {
    let [sum, logarithms] = [0, 0];
    for (let run = 0; run < 10; run++) {
      const left = [0, 1, 2, 3, 4, 5];
      while (left.length > layers) left.splice(random(left.length), 1);
      const found = known.get(left.join()) ?? (await perplexityOf(file, left));
      known.set(left.join(), found);
      sum += found / 10;
      logarithms += Math.log(found) / 10;
    }
    chance.set(layers, { mean: sum, ofLogarithms: Math.exp(logarithms) });
  }
  const memo = new Map<string, number>();
  for (const by of ["variance", "influence", "search"] as const) {
    const { curve, kept } = await prune(file, {
      memo,
      targetLayers: 1,
      texts: texts(),
      tokens: TOKENS,
      by,
      load: { threads: 1 },
    });
    assert.deepEqual(
      curve.map(({ layers }) => layers),
      [6, 5, 4, 3, 2, 1],
    );
    assert.equal(kept.length, 1);
    assert.equal(curve.at(-1)!.perplexity, await perplexityOf(file, kept));
    for (const { layers, perplexity } of curve.slice(1)) {
      for (const [what, value] of Object.entries(chance.get(layers)!)) {
        assert.ok(perplexity < value, `${by}: ${perplexity} with ${layers} layers, by chance ${value} (${what})`);
      }
    }
  }
});

test("the last third of the layers is chosen by loss, whatever the others are chosen by", async () => {
  for (const by of ["variance", "influence"] as const) {
    const memo = new Map<string, number>();
    const options = { targetLayers: 1, texts: texts(), tokens: TOKENS, by, memo, load: { threads: 1 } };
    const { kept, curve, scores } = await prune(trained(), options);
    const last = curve.slice(-2).map(({ dropped }) => dropped!);
    // Of two layers each was tried alone, and no other number of them.
    const two = [...kept, last[1]!];
    const tried = two.map((layer) => memo.get(`choose ${layer}`)!);
    assert.equal(tried[0], Math.min(...tried), `${by}: ${two} ${tried}`);
    assert.equal([...memo.keys()].filter((key) => key.startsWith("choose")).length, 2);
    const order = curve.slice(1, -1).map(({ dropped }) => scores![dropped!]!);
    assert.deepEqual(
      order,
      [...order].sort((a, b) => a - b),
    );
  }
});

test("a layer that does nothing goes first, and nothing is lost", async () => {
  const file = trained();
  // Attention and feed-forward of layer 3 add zeros: all of their codes are 1.
  const zeros = (name: string) =>
    spoilt(name, (data) => {
      for (let at = 0; at < data.length; at++) if (at % 66 < 64) data[at] = 0x55;
    });
  const dead = rebuilt(file, {
    tensors: (all) => zeros("blk.3.ffn_down.weight")(zeros("blk.3.attn_output.weight")(all)),
  });
  for (const by of ["variance", "influence", "search"] as const) {
    const pruned = await prune(dead, { targetLayers: 5, texts: texts(), tokens: 128, by, load: { threads: 1 } });
    assert.deepEqual(pruned.kept, [0, 1, 2, 4, 5], by);
    assert.equal(pruned.curve[1]!.perplexity, pruned.curve[0]!.perplexity, by);
    const [whole, cut] = [contents(dead).tensors, contents(await bytesOf(pruned.file)).tensors];
    assert.equal(cut.size, [...whole.keys()].filter((name) => !name.startsWith("blk.3.")).length);
  }
});

test("keeping all is the same file, byte for byte", async () => {
  const file = trained();
  const { file: same, curve } = await prune(file, { targetLayers: 6, texts: texts(), tokens: 256 });
  assert.deepEqual(await bytesOf(same), file);
  assert.equal(curve.length, 1);
});

test("what stays is renumbered, and size falls with the share of layers", async () => {
  const file = trained();
  const {
    kept,
    bytesAfter,
    bytesBefore,
    file: made,
  } = await prune(file, { targetLayers: 3, texts: texts(), tokens: 256 });
  const cut = await bytesOf(made);
  const [whole, left] = [contents(file), contents(cut)];
  for (const [at, layer] of kept.entries()) {
    for (const [name, { data }] of whole.tensors) {
      if (name.startsWith(`blk.${layer}.`))
        assert.deepEqual(left.tensors.get(name.replace(`blk.${layer}.`, `blk.${at}.`))!.data, data);
    }
  }
  const architecture = whole.metadata.get("general.architecture");
  assert.equal(left.metadata.get(`${architecture}.block_count`), 3);
  const layers = [...whole.tensors].filter(([name]) => name.startsWith("blk."));
  const bytes = layers.reduce((sum, [, { data }]) => sum + data.length, 0);
  assert.ok(Math.abs((bytesBefore - bytesAfter) / (bytes / 2) - 1) < 0.03);
});

const MAP = "ternlight.activations";

test("a model's own map of activations is renumbered with its layers", async () => {
  const map: ActivationMap = { "blk.0-5.ffn_down": "int4", "blk.5": "int8", "blk.*.attn_output": "int2" };
  const plain = trained();
  const file = rebuilt(plain, { keys: { [MAP]: JSON.stringify(map) } });
  const options = { targetLayers: 5, texts: texts(), tokens: 64, load: { threads: 1 } } as const;
  const { file: made, kept } = await prune(file, options);
  const expected: ActivationMap = {
    "blk.0-4.ffn_down": "int4",
    "blk.*.attn_output": "int2",
    ...(kept.includes(5) ? { "blk.4": "int8" } : {}),
  };
  const cut = await bytesOf(made);
  const model = await load(cut, { threads: 1 });
  assert.deepEqual(model.info.activationMap, expected);
  const mapped = await model.logits([1, 2, 3, 5, 8]);
  await model.close();
  const unmapped = await load(rebuilt(cut, { keys: { [MAP]: null } }), { threads: 1, activations: expected });
  assert.deepEqual(await unmapped.logits([1, 2, 3, 5, 8]), mapped);
  await unmapped.close();
  const read = async (layers: number[], own: ActivationMap) => {
    const bytes = rebuilt(plain, { keys: { [MAP]: JSON.stringify(own) } });
    const gguf = await Gguf.open([new BlobSource(new Blob([bytes]), "model")]);
    const shorter = await bytesOf(withLayers({ spec: { kind: "bytes", bytes } }, gguf, layers));
    const found = await load(shorter, { threads: 1, warmup: false });
    await found.close();
    return [found.info.activationMap, contents(shorter).metadata.get(MAP)];
  };
  // A range of which one layer is left, beside what was said of that layer: the layer goes before the range.
  for (const both of [
    { "blk.3": "int8", "blk.2-3.*": "int4" },
    { "blk.2-3": "int4", "blk.3.*": "int8" },
  ] as ActivationMap[]) {
    assert.deepEqual((await read([0, 1, 3], both))[0], { "blk.2": "int8" });
  }
  assert.deepEqual((await read([0, 4], { "blk.1-4.ffn_up.weight": "int4" }))[0], { "blk.1.ffn_up": "int4" });
  assert.deepEqual(await read([0, 1], { "blk.2-5": "int4" }), [undefined, undefined]);
});

test("numbers of layers that would change their meaning are refused by name", async () => {
  const file = trained();
  const given = { texts: texts(), tokens: 64, targetLayers: 5 };
  const refused = (code: string, key: string) => (error: { code: string; detail: { key?: string } }) =>
    error.code === code && error.detail.key === key;
  const numbered = { activations: { "blk.*": "int8", "blk.0-5.ffn_down": "int4" } } as const;
  await assert.rejects(prune(file, { ...given, load: numbered }), refused("InvalidArgument", "blk.0-5.ffn_down"));
  const key = "prism.hadamard.weight_names";
  const rotated = rebuilt(await goldenFile("gguf/llama_f32.F32.gguf"), { keys: { [key]: ["blk.0.attn_q.weight"] } });
  await assert.rejects(prune(rotated, { ...given, targetLayers: 1 }), refused("UnsupportedSetting", key));
  const flags = ["--calibration-data", "text.txt", "--target-layers", "5", "--output", "small.gguf"];
  const activations = JSON.stringify(numbered.activations);
  const { message } = await failure(2, "prune", "ternlight-demo", ...flags, "--activations", activations);
  assert.match(message, /--activations: "blk\.0-5\.ffn_down" names layers by number/);
});

test("what is wrong is refused by name", async () => {
  const file = await goldenFile("gguf/llama_f32.F32.gguf");
  const refused = (code: string) => (error: { code: string }) => error.code === code;
  const given = { texts: texts(), tokens: 64 };
  await assert.rejects(prune(file, { ...given, targetLayers: 99 }), refused("InvalidArgument"));
  await assert.rejects(prune(file, { texts: ["a"], targetLayers: 1 }), refused("BadValue"));
  const hybrid = await goldenFile("gguf/qwen35_odd.hadamard.F32.gguf");
  await assert.rejects(prune(hybrid, { ...given, targetLayers: 1 }), refused("UnsupportedSetting"));
});

test("the command prunes, draws the curve, and goes on where it was interrupted", async (context) => {
  const lines = texts()
    .slice(0, 8)
    .map((text) => JSON.stringify({ text }));
  const folder = await folderOf(context, { "data.jsonl": new TextEncoder().encode(lines.join("\n")) });
  const [out, plot] = [path.join(folder, "small.gguf"), path.join(folder, "curve.svg")];
  const flags = ["--calibration-data", path.join(folder, "data.jsonl"), "--calibration-tokens", "128", "--output", out];
  const told = await json("prune", "ternlight-demo", ...flags, "--target-layers", "4", "--plot", plot);
  const { kept, curve, file, compared } = told;
  assert.deepEqual([file, kept.length, curve.length], [out, 4, 3]);
  const { before, after } = compared;
  assert.ok(after.kl > before.kl && after.perplexity > before.perplexity && after.memory < before.memory);
  assert.ok(after.sameWinner < 1 && before.predictedPerSecond > 0);
  assert.equal(compared.text, "held-out");
  const picture = await readFile(plot, "utf8");
  assert.match(picture, /^<svg /);
  assert.equal(picture.match(/<circle/g)!.length, 3);
  assert.equal((await json("inspect", out)).config.layers, 4);
  assert.equal((await ternlight("prune", "ternlight-demo", ...flags, "--target-layers", "4")).status, 1);
  assert.equal((await ternlight("prune", "ternlight-demo", ...flags, "--force")).status, 2);
  const memo = new Map<string, number>();
  const loads: string[] = [];
  const again = () =>
    prune(trained(), {
      targetLayers: 5,
      texts: texts(),
      tokens: 64,
      by: "search",
      memo,
      onProgress: (what) => loads.push(what),
    });
  const first = await again();
  const count = memo.size;
  assert.ok(count >= 8);
  const second = await again();
  assert.deepEqual([second.curve, memo.size], [first.curve, count]);
});

/** A checkpoint with fewer neurons in each feed-forward block. */
function narrowed(files: Files, ffn: number): Files {
  const parse = (bytes: Uint8Array) => JSON.parse(new TextDecoder().decode(bytes));
  const old = files["model.safetensors"]!;
  const length = new DataView(old.buffer, old.byteOffset).getUint32(0, true);
  const { __metadata__, ...header } = parse(old.subarray(8, 8 + length));
  const entries = Object.entries<{ dtype: string; shape: number[]; data_offsets: [number, number] }>(header);
  const kept = entries.map(([name, { dtype, shape, data_offsets }]) => {
    const data = old.subarray(8 + length + data_offsets[0], 8 + length + data_offsets[1]);
    if (/mlp\.down_proj/.test(name)) {
      const [rows, row] = [shape[0]!, data.length / shape[0]!];
      const cut = Array.from({ length: rows }, (_, i) => [...data.subarray(row * i, row * i + 2 * ffn)]);
      return { name, dtype, shape: [rows, ffn], data: Uint8Array.from(cut.flat()) };
    }
    if (!/\.mlp\./.test(name)) return { name, dtype, shape, data };
    return { name, dtype, shape: [ffn, ...shape.slice(1)], data: data.subarray(0, (data.length / shape[0]!) * ffn) };
  });
  const config = { ...parse(files["config.json"]!), intermediate_size: ffn };
  return { ...files, "config.json": asJson(config), "model.safetensors": safetensors(kept) };
}

test("the command prunes safetensors: of ternary floats as TQ2_0, of others as they are stored", async (context) => {
  const folder = await folderOf(context, { "text.txt": new TextEncoder().encode(demoText().slice(0, 1000)) });
  const [text, out] = [path.join(folder, "text.txt"), path.join(folder, "small.gguf")];
  const flags = ["--calibration-data", text, "--calibration-tokens", "64", "--threads", "1", "--output", out];
  // BF16; and TQ2_0 of floats that are ternary.
  for (const [model, type] of [
    ["qwen3", 30],
    ["trilm_style", 35],
  ] as const) {
    const { kept } = await json("prune", goldenPath(`models/${model}`), ...flags, "--target-layers", "1", "--force");
    assert.equal(kept.length, 1);
    const { tensors } = contents(await readFile(out));
    assert.equal(tensors.get("blk.0.attn_q.weight")!.type, type);
    assert.equal(tensors.get("blk.0.ffn_down.weight")!.type, type);
    assert.equal(tensors.get("blk.1.attn_q.weight"), undefined);
  }
  // Rows of 384 values: no whole blocks of TQ2_0, but whole groups of I2_S.
  const narrow = await folderOf(context, narrowed(await goldenFolder("models/onebitllm_style"), 384));
  await json("prune", narrow, ...flags, "--target-layers", "1", "--force");
  assert.equal(contents(await readFile(out)).tensors.get("blk.0.ffn_down.weight")!.type, I2_S);
  const { code, message } = await failure(
    1,
    ...["prune", goldenPath("models/llama_autobitlinear"), ...flags, "--target-layers", "1", "--force"],
  );
  assert.equal(code, "UnsupportedSetting");
  assert.match(message, /not whole blocks of TQ2_0/);
});
