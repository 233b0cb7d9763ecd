import assert from "node:assert/strict";
import { test } from "node:test";
import { canRun, inspect, load } from "ternlight";
import { blockTypes, randomBits, randomBlocks } from "../../src/bench/blocks.ts";
import { shapes } from "../../src/bench/shapes.ts";
import { synthetic, syntheticSource } from "../../src/bench/synthetic.ts";

const refused = (code: string, pattern: RegExp) => (error: unknown) => {
  const { code: found, message } = error as { code: string; message: string };
  return found === code && pattern.test(message);
};

test("every named shape is a model of its size", async () => {
  for (const [name, shape] of Object.entries(shapes)) {
    const { config, architecture } = await inspect(syntheticSource({ shape: name }));
    assert.equal(architecture, shape.arch);
    const found = { ...shape, arch: architecture };
    const { hidden, ffn, layers, heads, kvHeads: kv, headSize: head, vocab, tied } = config;
    assert.deepEqual({ ...found, hidden, ffn, layers, heads, kv, head, vocab, tied: tied ? 1 : 0 }, found, name);
  }
});

test("every storage type is made of blocks that load, with the values of weights", async () => {
  for (const [type, { values }] of Object.entries(blockTypes)) {
    const embedding = type === "i2_s" ? "f16" : type;
    const file = synthetic({ shape: "fairy,layers=1,vocab=64,tied=0", type, embedding });
    const { tensors } = await inspect(file, { weights: true });
    const matrix = tensors.find(({ name }) => name === "blk.0.ffn_down.weight")!;
    assert.equal(matrix.type.toLowerCase(), type);
    // Three codes of which one is zero.
    if (["tq1_0", "tq2_0", "i2_s", "q2_0", "pq2_0", "ptq1_0"].includes(type)) {
      assert.ok(Math.abs(matrix.zeroShare! - 1 / 3) < 0.01, `${type}: ${matrix.zeroShare}`);
    }
    assert.equal((256 * 768) % values, 0);
  }
});

test("scales of groups differ where those of published models do", () => {
  for (const [type, { bytes, halves }] of Object.entries(blockTypes)) {
    const scale = Object.keys(halves ?? {})[0];
    if (scale === undefined) continue;
    const blocks = Buffer.from(randomBlocks(blockTypes[type]!, 64, randomBits(1)));
    const scales = new Set(Array.from({ length: 64 }, (_, i) => blocks.readUInt16LE(i * bytes + Number(scale))));
    const differ = ["q1_0", "q2_0", "pq2_0", "ptq1_0"].includes(type);
    assert.ok(differ ? scales.size > 16 : scales.size === 1, `${type}: ${scales.size}`);
  }
});

test("the same seed gives the same file, another another", async () => {
  const bytes = async (seed: number) =>
    Buffer.from(await synthetic({ shape: "fairy,layers=1,vocab=32", seed }).arrayBuffer());
  assert.ok((await bytes(1)).equals(await bytes(1)));
  assert.ok(!(await bytes(1)).equals(await bytes(2)));
});

test("no two rows of a vocabulary are the same", async () => {
  const [vocab, row] = [20_000, 210];
  const file = synthetic({ shape: `fairy,layers=1,vocab=${vocab}`, type: "tq2_0", embedding: "q6_k" });
  const { tensors } = await inspect(file);
  const aligned = tensors.map(({ bytes }) => Math.ceil(bytes / 32) * 32);
  const sum = (sizes: number[]) => sizes.reduce((all, size) => all + size, 0);
  const place = tensors.findIndex(({ name }) => name === "token_embd.weight");
  const start = file.size - sum(aligned.slice(place));
  const rows = Buffer.from(await file.slice(start, start + vocab * row).arrayBuffer());
  const different = new Set(Array.from({ length: vocab }, (_, i) => rows.toString("latin1", i * row, (i + 1) * row)));
  assert.equal(different.size, vocab);
});

test("a single matrix may have another type", async () => {
  const { kinds } = await inspect(
    synthetic({ shape: "fairy,layers=3", type: "tq2_0,ffn_down=q8_0", embedding: "f16" }),
  );
  assert.deepEqual(kinds, { F16: 1, F32: 13, Q8_0: 3, TQ2_0: 18 });
});

test("words that mean nothing are refused by name", () => {
  assert.throws(() => synthetic({ shape: "4b" }), refused("InvalidArgument", /shape must be .*2b4t.*, not 4b/));
  assert.throws(() => synthetic({ shape: "2b4t,size=1" }), refused("InvalidArgument", /hidden.*not size/));
  const hybrid = /(?=.*interval)(?=.*kheads)(?=.*vheads)(?=.*state).*, not depth/;
  assert.throws(() => synthetic({ shape: "bonsai27b,depth=1" }), refused("InvalidArgument", hybrid));
  assert.throws(() => synthetic({ shape: "2b4t,interval=4" }), refused("InvalidArgument", /vocab, not interval/));
  assert.throws(() => synthetic({ shape: "2b4t,layers" }), refused("InvalidArgument", /key=value/));
  assert.throws(() => synthetic({ shape: "2b4t,layers=-1" }), refused("InvalidArgument", /layers=N/));
  assert.throws(() => synthetic({ shape: "fairy", type: "q9" }), refused("InvalidArgument", /type must be .*tq2_0/));
  assert.throws(
    () => synthetic({ shape: "fairy", type: "tq2_0,nose=f16" }),
    refused("InvalidArgument", /ffn_down.*nose/),
  );
  assert.throws(() => synthetic({ shape: "135m", type: "tq2_0" }), refused("InvalidArgument", /rows of 576/));
});

test("a hybrid may be stored rotated, and have a head for further tokens", async () => {
  const sizes = "hidden=256,layers=4,heads=2,kv=1,ffn=512,kheads=2,vheads=4,vocab=512";
  const source = synthetic({ shape: `bonsai27b,${sizes},rotated=256,mtp=1` });
  const { rotation, config } = await inspect(source);
  // Of three gated delta nets, a layer that attends, the head for further tokens, and the output.
  assert.deepEqual(rotation, {
    transform: "hadamard",
    block: 256,
    signs: true,
    matrices: 3 * 6 + 7 + 7 + 1,
    embedding: true,
  });
  assert.equal(config.layers, 4);
  const model = await load(source, { mtp: true, threads: 1, contextLength: 256 });
  assert.ok(!model.info.warnings.some((warning) => warning.startsWith("mtp:")), model.info.warnings.join());
  const [row] = await model.logits([1, 2, 3]);
  assert.ok(row!.every(Number.isFinite));
  const greedy = { maxTokens: 24, temperature: 0, ignoreEos: true };
  const [guessing, plain] = await Promise.all(
    [{}, { mtpDraft: false }].map((asked) => model.generate([1, 2, 3], { ...greedy, ...asked }).finished),
  );
  assert.deepEqual(guessing!.tokens, plain!.tokens);
  await model.close();
});

test("a large model comes in parts, and is split over memories", async () => {
  assert.ok(syntheticSource({ shape: "fairy" }) instanceof File);
  const source = syntheticSource({ shape: "ternary27b" });
  assert.deepEqual(
    Object.keys(source),
    [1, 2, 3, 4].map((part) => `ternary27b-0000${part}-of-00004.gguf`),
  );
  const { needed, parts } = await canRun(source, { contextLength: 512 });
  assert.ok(needed.weights > 6.6 * 2 ** 30 && needed.weights < 7.5 * 2 ** 30, String(needed.weights));
  assert.ok(parts! >= 2, String(parts));
});
