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
import { json, ternlight } from "../cli/support/ternlight.ts";
import { contents } from "../convert/support/convert.ts";
import { folderOf, goldenFile } from "../source/support/models.ts";
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

const TOKENS = 512;

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

test("every way to choose beats the mean of ten random choices at every number of layers", async () => {
  const file = trained();
  const known = new Map<string, number>();
  let seed = 1;
  const random = (below: number) => {
    seed = (seed * 48_271) % 2_147_483_647;
    return seed % below;
  };
  const chance = new Map<number, number>();
  for (let layers = 1; layers < 6; layers++) {
    let sum = 0;
    for (let run = 0; run < 10; run++) {
      const left = [0, 1, 2, 3, 4, 5];
      while (left.length > layers) left.splice(random(left.length), 1);
      const found = known.get(left.join()) ?? (await perplexityOf(file, left));
      known.set(left.join(), found);
      sum += found / 10;
    }
    chance.set(layers, sum);
  }
  for (const by of ["variance", "influence", "search"] as const) {
    const { curve, kept } = await prune(file, {
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
      assert.ok(
        perplexity < chance.get(layers)!,
        `${by}: ${perplexity} with ${layers} layers, by chance ${chance.get(layers)}`,
      );
    }
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
  const { kept, curve, file } = await json("prune", "ternlight-demo", ...flags, "--target-layers", "4", "--plot", plot);
  assert.deepEqual([file, kept.length, curve.length], [out, 4, 3]);
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
