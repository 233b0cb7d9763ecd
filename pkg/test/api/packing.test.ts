/** The option `ternaryPacking`: the same answers from less memory, in every build. */

import assert from "node:assert/strict";
import { readdir, readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { test } from "node:test";
import { canRun, inspect, type LoadOptions, load, type TernaryPacking } from "ternlight";
import { synthetic } from "../../src/bench/synthetic.ts";
import { folderOf, goldenPath } from "../source/support/models.ts";
import { failure } from "./support/model.ts";

/** Enough tokens for the kernels of one, of a few and of many. */
const IDS = Array.from({ length: 40 }, (_, i) => (i * 37) % 500);

async function answers(name: string, options: LoadOptions) {
  const model = await load(goldenPath(name), options);
  try {
    const rows = [1, 6, 40].map((count) => model.logits(IDS.slice(0, count), { all: true }));
    return { info: model.info, logits: await Promise.all(rows) };
  } finally {
    await model.close();
  }
}

test("weights five to a byte give the logits of four to a byte, in every build", async () => {
  const builds = [
    { flavour: "relaxed", threads: 1 },
    { flavour: "relaxed", threads: 2 },
    { flavour: "simd128", threads: 1 },
    { flavour: "simd128", threads: 2 },
  ] as const;
  for (const name of ["gguf/llama_bitlinear.TQ2_0.gguf", "gguf/trilm_style.TQ1_0.gguf", "models/bitnet_packed"]) {
    const expected = await answers(name, { ternaryPacking: "2-bit", threads: 1 });
    assert.equal(expected.info.ternaryPacking, "2-bit", name);
    for (const build of builds) {
      const { info, logits } = await answers(name, { ternaryPacking: "1.6-bit", ...build });
      assert.equal(info.ternaryPacking, "1.6-bit", name);
      assert.deepEqual(logits, expected.logits, `${name} ${JSON.stringify(build)}`);
      assert.ok(info.memory.weights < expected.info.memory.weights, name);
    }
  }
});

test("inspect and canRun count the smaller weights", async () => {
  const source = goldenPath("models/bitnet_packed");
  const { info } = await answers("models/bitnet_packed", { ternaryPacking: "1.6-bit", threads: 1 });
  const about = await inspect(source, { ternaryPacking: "1.6-bit" });
  assert.equal(about.ternaryPacking, "1.6-bit");
  assert.equal(about.memory.weights, info.memory.weights);
  const { needed } = await canRun(source, { ternaryPacking: "1.6-bit" });
  assert.equal(needed.weights, info.memory.weights);
});

test("auto measures large models, keeps two bits in small ones and in those that are not ternary", async () => {
  const small = await answers("models/bitnet_packed", { ternaryPacking: "auto", threads: 1 });
  assert.equal(small.info.ternaryPacking, "2-bit");
  const other = await answers("gguf/llama_bf16.Q8_0.gguf", { ternaryPacking: "auto", threads: 1 });
  assert.equal(other.info.ternaryPacking, undefined);
  const model = await load(synthetic({ shape: "138m" }), { ternaryPacking: "auto", threads: 2, cache: false });
  try {
    assert.ok(model.info.ternaryPacking === "2-bit" || model.info.ternaryPacking === "1.6-bit");
    const asked = await inspect(synthetic({ shape: "138m" }), { ternaryPacking: model.info.ternaryPacking });
    assert.ok(model.info.memory.weights <= asked.memory.weights);
  } finally {
    await model.close();
  }
});

test("what auto found decides the next load, where it is kept", async (context) => {
  const cache = await folderOf(context, {});
  const packed = async (ternaryPacking: TernaryPacking) => {
    const model = await load(synthetic({ shape: "138m" }), { ternaryPacking, threads: 2, cache, warmup: false });
    await model.close();
    return model.info.ternaryPacking;
  };
  assert.equal(await packed("1.6-bit"), "1.6-bit");
  const [name] = (await readdir(cache)).filter((name) => name.startsWith("tuning-"));
  const file = path.join(cache, name!);
  const kept = async () => JSON.parse(await readFile(file, "utf8"));
  assert.equal((await kept()).ternaryPacking, undefined, "what was asked for is not kept");
  assert.equal(await packed("auto"), (await kept()).ternaryPacking);
  const change = async (ternaryPacking: string) => {
    await writeFile(file, JSON.stringify({ ...(await kept()), ternaryPacking }).padEnd(256));
  };
  for (const found of ["1.6-bit", "2-bit"]) {
    await change(found);
    assert.equal(await packed("auto"), found);
  }
  assert.equal(await packed("1.6-bit"), "1.6-bit");
  assert.equal((await kept()).ternaryPacking, "2-bit");
  await change("1-bit");
  assert.equal(await packed("auto"), (await kept()).ternaryPacking, "a record that is damaged");
});

test("other values of the option are refused", async () => {
  const wrong = "1-bit" as TernaryPacking;
  const { code } = await failure(() => load(goldenPath("models/bitnet_packed"), { ternaryPacking: wrong }));
  assert.equal(code, "InvalidArgument");
});
