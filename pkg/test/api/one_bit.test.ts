/** The option `oneBitSums`: the same answers by dot products and by sums that are looked up, in every build. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { inspect, type LoadOptions, load } from "ternlight";
import { synthetic } from "../../src/bench/synthetic.ts";
import { goldenPath } from "../source/support/models.ts";
import { failure } from "./support/model.ts";

const source = () => goldenPath("gguf/qwen3.Q1_0_all.gguf");
/** Enough tokens for the kernels of one and of a few, for the last that tables are made for, and for many. */
const IDS = Array.from({ length: 40 }, (_, i) => (i * 37) % 500);

async function answers(options: LoadOptions) {
  const model = await load(source(), options);
  try {
    const rows = [1, 6, 23, 40].map((count) => model.logits(IDS.slice(0, count), { all: true }));
    return { info: model.info, logits: await Promise.all(rows) };
  } finally {
    await model.close();
  }
}

test("sums that are looked up give the logits of dot products, in every build", async () => {
  const expected = await answers({ oneBitSums: "dot", flavour: "relaxed", threads: 1 });
  assert.equal(expected.info.oneBitSums, "dot");
  for (const flavour of ["relaxed", "simd128"] as const)
    for (const threads of [1, 2])
      for (const dotProduct of ["dot4", "dot2"] as const)
        for (const oneBitSums of ["dot", "lookup"] as const) {
          const { info, logits } = await answers({ flavour, threads, dotProduct, oneBitSums });
          const build = JSON.stringify({ flavour, threads, dotProduct, oneBitSums });
          assert.equal(info.oneBitSums, flavour === "simd128" ? "lookup" : oneBitSums, build);
          assert.deepEqual(logits, expected.logits, build);
        }
});

test("auto follows the dot product, measured or asked for, and inspect says what is asked for", async () => {
  for (const dotProduct of ["auto", "dot4", "dot2"] as const) {
    const options = { threads: 2, flavour: "relaxed", cache: false, dotProduct } as const;
    const model = await load(synthetic({ shape: "138m", type: "q1_0" }), options);
    try {
      const { info } = model;
      if (dotProduct !== "auto") assert.equal(info.dotProduct, dotProduct);
      assert.equal(info.oneBitSums, info.dotProduct === "dot2" ? "lookup" : "dot");
    } finally {
      await model.close();
    }
  }
  assert.equal((await inspect(source(), { oneBitSums: "lookup" })).oneBitSums, "lookup");
  const ternary = await load(goldenPath("models/bitnet_packed"), { oneBitSums: "lookup", threads: 1 });
  try {
    assert.equal(ternary.info.oneBitSums, undefined);
  } finally {
    await ternary.close();
  }
});

test("another value is refused by name", async () => {
  const wrong = "table" as unknown as "dot";
  const { code, message } = await failure(() => load(source(), { oneBitSums: wrong }));
  assert.equal(code, "InvalidArgument");
  assert.match(message, /oneBitSums/);
});
