/** The option `head`: an embedding and a head of another type, from the same file. */

import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { type TestContext, test } from "node:test";
import {
  canRun,
  type Head,
  inspect,
  type LoadOptions,
  load,
  type MemoryNeeds,
  type Model,
  type ModelSource,
} from "ternlight";
import { synthetic } from "../../src/bench/synthetic.ts";
import { golden } from "../cli/support/golden.ts";
import { done, json } from "../cli/support/ternlight.ts";
import { contents } from "../convert/support/convert.ts";
import { goldenFile, goldenPath } from "../source/support/models.ts";
import { failure } from "./support/model.ts";

const TYPES = { q8_0: "Q8_0", q6_k: "Q6_K", q4_0: "Q4_0" } as const;
const BLOCKS: Record<string, number> = { q8_0: 32, q6_k: 256, q4_0: 32 };
const IDS = [1, 5, 9, 2, 30, 77, 4, 12];
const EMBEDDING = /token_embd|embed_tokens|^output\.weight|lm_head/;

async function opened(context: TestContext, source: ModelSource, options: LoadOptions = {}): Promise<Model> {
  const model = await load(source, { threads: 1, ...options });
  context.after(() => model.close());
  return model;
}

async function logits(source: ModelSource, options: LoadOptions = {}): Promise<Float32Array[]> {
  const model = await load(source, { threads: 1, ...options });
  try {
    return await model.logits(IDS, { all: true });
  } finally {
    await model.close();
  }
}

const models = [
  ...readdirSync(goldenPath("gguf"))
    .filter((name) => name.endsWith(".gguf"))
    .map((name) => `gguf/${name}`),
  ...["bitnet_packed", "llama_bitlinear", "llama_f32", "qwen3", "trilm_style"].map((name) => `models/${name}`),
];

test("every golden model: each type is loaded as it was announced", async (context) => {
  const seen = new Set<string>();
  for (const name of models) {
    const source = goldenPath(name);
    let about: Awaited<ReturnType<typeof inspect>>;
    try {
      about = await inspect(source);
    } catch (error) {
      assert.equal((error as { code?: string }).code, "UnsupportedArchitecture", name);
      continue;
    }
    const { heads, tensors } = about;
    assert.equal(heads[0]!.head, "stored", name);
    assert.deepEqual(heads[0]!.memory, about.memory, name);
    const fitting = await canRun(source);
    assert.deepEqual(
      fitting.heads,
      heads.map((choice) => ({ ...choice, ok: true })),
      name,
    );
    const stored = await opened(context, source);
    const { memory } = stored.info;
    const expected = await stored.logits(IDS, { all: true });
    await stored.close();
    for (const [head, type] of Object.entries(TYPES) as [Head, string][]) {
      const choice = heads.find((choice) => choice.head === head);
      if (about.config.hidden % BLOCKS[head]! !== 0) {
        assert.equal(choice, undefined);
        assert.equal((await failure(() => load(source, { head }))).code, "InvalidArgument", name);
        continue;
      }
      const model = await opened(context, source, { head });
      const rounded = model.info.tensors.filter(({ roundedTo }) => roundedTo !== undefined);
      const rows = await model.logits(IDS, { all: true });
      seen.add(`${head} ${choice ? "rounds" : "leaves"} ${tensors.find(({ name }) => EMBEDDING.test(name))!.type}`);
      const left = model.info.warnings.filter((warning) => warning.includes("stays as it is stored"));
      const parts = tensors.filter(({ name }) => EMBEDDING.test(name));
      assert.equal(left.length, parts.filter((one) => one.type !== type).length - rounded.length, `${name} ${head}`);
      if (choice) {
        assert.ok(
          rounded.length > 0 && rounded.every(({ name, roundedTo }) => EMBEDDING.test(name) && roundedTo === type),
        );
        // A load finds rows that share one scale, which may take more or less than inspect() says of all values of the option.
        const less = (all: MemoryNeeds, one: MemoryNeeds) =>
          Object.entries(all).map(([part, bytes]) => [part, bytes - one[part as keyof MemoryNeeds]]);
        assert.deepEqual(less(memory, model.info.memory), less(heads[0]!.memory, choice.memory), `${name} ${head}`);
        assert.ok(choice.memory.weights < heads[0]!.memory.weights, `${name} ${head}`);
        assert.ok(choice.bytesPerToken < heads[0]!.bytesPerToken, `${name} ${head}`);
        assert.notDeepEqual(rows, expected, `${name} ${head}`);
      } else {
        assert.equal(rounded.length, 0);
        assert.deepEqual(rows, expected, `${name} ${head}`);
      }
      await model.close();
    }
  }
  for (const one of [
    "q8_0 rounds F16",
    "q6_k rounds BF16",
    "q6_k rounds Q8_0",
    "q4_0 rounds Q6_K",
    "q8_0 leaves Q6_K",
  ]) {
    assert.ok(seen.has(one), `${one} is not among ${[...seen].join(", ")}`);
  }
});

test("every build and any number of threads round to the same bits", async () => {
  for (const name of ["models/llama_bf16", "gguf/llama_f32.F32.gguf"]) {
    const { heads } = await inspect(goldenPath(name));
    const rounded = heads.map(({ head }) => head).filter((head) => head !== "stored");
    assert.ok(rounded.length > 1, name);
    for (const head of rounded) {
      const expected = await logits(goldenPath(name), { head });
      for (const flavour of ["relaxed", "simd128"] as const) {
        for (const threads of [1, 2]) {
          assert.deepEqual(
            await logits(goldenPath(name), { head, flavour, threads }),
            expected,
            `${flavour} ${threads}`,
          );
        }
      }
    }
  }
});

test("a finer type is nearer to what is stored, and nearer than a file that has it everywhere", async () => {
  const source = goldenPath("models/llama_bf16");
  const expected = (await logits(source)).flatMap((row) => [...row]);
  const far = async (...model: Parameters<typeof logits>) => {
    const found = (await logits(...model)).flatMap((row) => [...row]);
    return Math.sqrt(found.reduce((sum, value, i) => sum + (value - expected[i]!) ** 2, 0) / found.length);
  };
  let finer = 0;
  for (const [head, type] of Object.entries(TYPES) as [Head, string][]) {
    const own = await far(source, { head });
    const whole = await far(goldenPath(`gguf/llama_bf16.${type}.gguf`));
    assert.ok(finer < own && own < whole, `${head}: ${own}, after ${finer}; a file of it: ${whole}`);
    finer = own;
  }
});

test("less memory is taken, in all", async () => {
  // 49,152 rows of 576: 57 MB in halves.
  const source = synthetic({ shape: "135m,layers=2", embedding: "f16" });
  const taken = async (head: Head) => {
    const model = await load(source, { threads: 2, head, contextLength: 256, kvCacheTokens: 256 });
    const { memoryBytes, memory, warnings } = model.info;
    await model.close();
    assert.deepEqual(warnings, ["the model has no tokenizer: prompts must be token ids"]);
    return { memoryBytes, memory };
  };
  const [stored, q8, q4] = [await taken("stored"), await taken("q8_0"), await taken("q4_0")];
  for (const [one, most] of [
    [q8, 0.54],
    [q4, 0.29],
  ] as const) {
    const saved = stored.memory.weights - one.memory.weights;
    assert.ok(saved > (1 - most) * 56.6e6, `${saved} bytes`);
    assert.ok(stored.memoryBytes - one.memoryBytes > saved - 4e6, `${stored.memoryBytes} and ${one.memoryBytes}`);
  }
});

test("what cannot be rounded is refused by name", async () => {
  const narrow = synthetic({ shape: "135m,layers=1", embedding: "f16" });
  const { heads } = await inspect(narrow);
  assert.deepEqual(
    heads.map(({ head }) => head),
    ["stored", "q8_0", "q4_0"],
  );
  for (const call of [load, canRun, inspect]) {
    const { code, message, detail } = await failure(() => call(narrow, { head: "q6_k" }));
    assert.equal(code, "InvalidArgument");
    assert.match(message, /whole blocks of this type; q8_0 and q4_0 fit/);
    assert.deepEqual(
      { ...detail },
      { tensor: "token_embd.weight", option: "head", expected: "a multiple of 256", found: "576" },
    );
  }
  const { code, detail } = await failure(() => load(narrow, { head: "q5_0" as Head }));
  assert.deepEqual([code, detail.option], ["InvalidArgument", "head"]);
});

test("a weight that is no number ends the load", async () => {
  const file = await goldenFile("gguf/llama_f32.F32.gguf");
  for (const value of [Number.NaN, Number.POSITIVE_INFINITY, 1e30]) {
    const bytes = file.slice();
    const { type, data } = contents(bytes).tensors.get("token_embd.weight")!;
    assert.equal(type, 0);
    new DataView(data.buffer, data.byteOffset).setFloat32(4000, value, true);
    for (const threads of [1, 2]) {
      const { code, detail } = await failure(() => load(bytes, { head: "q8_0", threads }));
      assert.deepEqual([code, detail.tensor], ["NonFinite", "token_embd.weight"], String(value));
    }
  }
});

test("an adapter that changes the head, and a session of another one", async (context) => {
  const source = goldenPath("models/llama_f32");
  const model = await opened(context, source, { head: "q8_0" });
  const { name } = await model.loadAdapter(goldenPath("lora/llama_f32.lora"));
  const { prompts } = golden("lora/llama_f32.lora/golden.json");
  const ids = prompts[0].input_ids;
  const plain = await opened(context, source);
  await plain.loadAdapter(goldenPath("lora/llama_f32.lora"), { name });
  const [found, expected] = await Promise.all(
    [model, plain].map((one) => one.logits(ids, { all: true, adapters: [{ name }] })),
  );
  const off = found!.flatMap((row, i) => [...row].map((value, j) => Math.abs(value - expected![i]![j]!)));
  assert.ok(Math.max(...off) < 1 && Math.max(...off) > 0, String(Math.max(...off)));

  const session = plain.session();
  await session.generate(IDS, { maxTokens: 40, ignoreEos: true, temperature: 0 }).finished;
  const saved = await session.save();
  assert.equal((await failure(() => model.restoreSession(saved))).code, "WrongModel");
  await plain.restoreSession(saved);
});

test("the command line takes the same option", async () => {
  const source = goldenPath("models/llama_bf16");
  const flags = ["--ids", IDS.join(), "--all", "--threads", "1"];
  const stored = await json("logits", source, ...flags);
  const found = await json("logits", source, ...flags, "--head", "q6_k");
  assert.notEqual(found.sha256, stored.sha256);
  const expected = await logits(source, { head: "q6_k" });
  assert.deepEqual(
    found.logits,
    expected.map((row) => [...row]),
  );
  const { stdout } = await done("inspect", source, "--no-weights");
  assert.match(stdout, /^Embedding and head\n +--head +memory to run +read for a token +of stored\n +stored /m);
  assert.match(stdout, /^ +q4_0 +[\d.]+ MB +[\d.]+ k?M?B +[\d.]+ %$/m);
});
