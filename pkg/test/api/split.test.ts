/** A model that is split over several memories is one model to its user, and computes the same bits. */

import assert from "node:assert/strict";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { pathToFileURL } from "node:url";
import { canRun, type LoadOptions, load, type Model } from "ternlight";
import { safetensors } from "../convert/support/mlx.ts";
import { random } from "../text/support/random.ts";
import { failure } from "./support/model.ts";

const file = (name: string) => new URL(`../../../tests/golden/${name}`, import.meta.url);
const GREEDY = { temperature: 0, maxTokens: 24, ignoreEos: true } as const;
const CONTEXT = { contextLength: 256 } as const;
const ids = (count: number, of = 7) => Array.from({ length: count }, (_, i) => 3 + ((i * of) % 440));
const flat = (rows: readonly Float32Array[]) => rows.map((row) => [...row]);

async function open(context: TestContext, name: string, options: LoadOptions = {}): Promise<Model> {
  const model = await load(file(name), { threads: 1, ...CONTEXT, ...options });
  context.after(() => model.close());
  return model;
}

/** A limit with which a model takes so many memories, made alike by the plan: of two, a byte less than the whole takes. */
async function limitFor(name: string, parts: number, options: LoadOptions = {}): Promise<number> {
  const { needed } = await canRun(file(name), { ...CONTEXT, ...options });
  if (parts === 2) return needed.total - 1;
  let [low, high] = [needed.total / parts, needed.total];
  while (high - low > needed.total / 256) {
    const middle = Math.floor((low + high) / 2);
    const answer = await canRun(file(name), { ...CONTEXT, ...options, maxPartBytes: middle });
    if (!answer.ok || answer.parts! > parts) low = middle;
    else high = middle;
  }
  assert.equal((await canRun(file(name), { ...CONTEXT, ...options, maxPartBytes: high })).parts, parts);
  return high;
}

test("every golden model gives the same logits from two memories", async (context) => {
  const folders = await readdir(file("models/"), { withFileTypes: true });
  const models = folders.flatMap((one) => (one.isDirectory() ? [`models/${one.name}/`] : []));
  const ggufs = (await readdir(file("gguf/"))).filter((name) => name.endsWith(".gguf")).map((name) => `gguf/${name}`);
  assert.ok(models.length > 10 && ggufs.length > 20);
  for (const name of [...models, ...ggufs]) {
    const whole = await open(context, name);
    const split = await open(context, name, { maxPartBytes: await limitFor(name, 2) });
    assert.deepEqual([whole.info.parts, split.info.parts], [undefined, 2]);
    assert.deepEqual(
      flat(await split.logits(ids(50), { all: true })),
      flat(await whole.logits(ids(50), { all: true })),
    );
    await Promise.all([whole.close(), split.close()]);
  }
});

for (const threads of [1, 2]) {
  for (const [name, parts] of [
    ["models/llama_f32/", 3],
    ["models/qwen35/", 3],
    ["models/qwen35/", 2],
  ] as const) {
    test(`${name} in ${parts} memories, with ${threads} threads, does all that it does whole`, async (context) => {
      const options = { threads, prefillChunk: 40 };
      const maxPartBytes = await limitFor(name, parts, options);
      const whole = await open(context, name, options);
      const split = await open(context, name, { ...options, maxPartBytes });
      assert.equal(split.info.parts, parts);
      const both = async <T>(work: (model: Model) => Promise<T>) =>
        assert.deepEqual(await work(split), await work(whole));

      await both(async (model) => [...(await model.embed([ids(60)]))].flatMap((one) => [...one]));

      // Several at once, whose beginnings are shared.
      await both((model) =>
        Promise.all(
          [1, 2, 3, 4, 5].map(async (of) => {
            const sampling = { ...GREEDY, temperature: of % 2 ? 0 : 0.8, seed: of, promptLookup: of === 3 };
            return (await model.generate([...ids(70), ...ids(of, of)], sampling).finished).tokens;
          }),
        ),
      );
      await both(async (model) => {
        const session = model.session();
        const answers: unknown[] = [(await session.generate(ids(70), GREEDY).finished).tokens];
        const fork = await session.fork();
        const saved = await session.save();
        answers.push(
          ...(await Promise.all(
            [session, fork].map(async (one, i) => {
              return (await one.generate([5 + i], GREEDY).finished).tokens;
            }),
          )),
        );
        await session.rewind(30);
        answers.push((await session.generate([9], GREEDY).finished).tokens, [...saved]);
        const restored = await model.restoreSession(saved);
        answers.push((await restored.generate([5], GREEDY).finished).tokens);
        return answers;
      });
      // What one saves goes on in the other.
      for (const [from, to] of [
        [whole, split],
        [split, whole],
      ] as const) {
        const session = from.session();
        await session.generate(ids(77), GREEDY).finished;
        const restored = await to.restoreSession(await session.save());
        const answers = await Promise.all(
          [session, restored].map(async (one) => one.generate([8, 9], GREEDY).finished),
        );
        assert.deepEqual(answers[1]!.tokens, answers[0]!.tokens);
        assert.ok(answers[1]!.timings.cachedN > 64);
      }
      const { memoryBytes, running } = await split.status();
      assert.ok(memoryBytes > (await whole.status()).memoryBytes && running === 0);
    });
  }
}

for (const [name, made] of [
  ["models/llama_f32/", async () => file("lora/llama_f32.lora/")],
  ["models/qwen35/", (context: TestContext) => lora(context, "models/qwen35/")],
] as const)
  test(`adapters are in every part of ${name}`, (context) => adaptersInParts(context, name, made));

async function adaptersInParts(context: TestContext, name: string, made: (context: TestContext) => Promise<URL>) {
  const whole = await open(context, name);
  const split = await open(context, name, { maxPartBytes: await limitFor(name, 3) });
  const adapter = await made(context);
  const rows = [];
  for (const model of [whole, split]) {
    await model.generate(ids(5), GREEDY).finished;
    await model.loadAdapter(adapter, { name: "a" });
    await model.loadAdapter(adapter, { name: "b" });
    rows.push(flat(await model.logits(ids(40), { all: true, adapters: [{ name: "a", scale: 0.5 }, { name: "b" }] })));
    await model.unloadAdapter("a");
    rows.push(flat(await model.logits(ids(40), { all: true, adapters: [{ name: "b" }] })));
    rows.push(flat(await model.logits(ids(40), { all: true })));
  }
  assert.deepEqual(rows.slice(3), rows.slice(0, 3));
  assert.notDeepEqual(rows[0], rows[2]);
}

/** A PEFT adapter for every matrix of the layers: those of gated delta nets, of attention and of the blocks behind both. */
async function lora(context: TestContext, name: string): Promise<URL> {
  const folder = await mkdtemp(join(tmpdir(), "ternlight-"));
  context.after(() => rm(folder, { recursive: true }));
  const tensors = shapes(await readFile(new URL("model.safetensors", file(name))));
  const [rank, next] = [3, random(11)];
  const half = (matrix: string, letter: string, shape: [number, number]) => {
    const values = Float32Array.from({ length: shape[0] * shape[1] }, () => (next(2001) - 1000) / 20_000);
    const data = new Uint8Array(values.buffer);
    return { name: `base_model.model.${matrix}.lora_${letter}.weight`, dtype: "F32", shape, data };
  };
  const matrices = tensors.filter(({ name, shape }) => name.includes(".layers.") && shape.length === 2);
  assert.ok(matrices.some(({ name }) => name.includes("linear_attn")));
  const entries = matrices.flatMap(({ name, shape: [rows, cols] }) => {
    const matrix = name.replace(/\.weight$/, "");
    return [half(matrix, "A", [rank, cols!]), half(matrix, "B", [rows!, rank])];
  });
  await writeFile(join(folder, "adapter_model.safetensors"), safetensors(entries));
  const config = { peft_type: "LORA", r: rank, lora_alpha: 2 * rank };
  await writeFile(join(folder, "adapter_config.json"), JSON.stringify(config));
  return pathToFileURL(`${folder}/`);
}

/** Names and shapes of a safetensors file. */
function shapes(bytes: Uint8Array): { name: string; shape: number[] }[] {
  const length = Number(new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(0, true));
  const { __metadata__, ...all } = JSON.parse(new TextDecoder().decode(bytes.subarray(8, 8 + length)));
  return Object.entries<{ shape: number[] }>(all).map(([name, { shape }]) => ({ name, shape }));
}

test("an answer is aborted in the middle of a pass, and the next one is right", async (context) => {
  const name = "models/qwen35/";
  const split = await open(context, name, { maxPartBytes: await limitFor(name, 3) });
  const expected = (await split.generate(ids(70), GREEDY).finished).tokens;
  for (let i = 0; i < 20; i++) {
    const abort = new AbortController();
    const answer = split.generate([...ids(30), ...ids(100, 3 + i)], { ...GREEDY, signal: abort.signal });
    setTimeout(() => abort.abort(), i / 2);
    await answer.finished.catch(() => {});
    assert.deepEqual((await split.generate(ids(70), GREEDY).finished).tokens, expected);
  }
});

test("what parts cannot do is told", async (context) => {
  const name = "models/llama_f32/";
  const maxPartBytes = await limitFor(name, 2);
  const refused = await failure(() => open(context, name, { maxPartBytes, health: true }));
  assert.deepEqual([refused.code, refused.detail.option], ["UnsupportedOption", "health"]);
  const prompted = await open(context, name, { maxPartBytes, prefill: ids(40) });
  assert.equal(prompted.info.prefill, undefined);
  assert.match(prompted.info.warnings.join(), /prefill: a model that is split over several memories/);
  // A layer alone is too large.
  const small = await canRun(file(name), { ...CONTEXT, maxPartBytes: 1000 });
  assert.deepEqual([small.ok, small.parts], [false, undefined]);
  const error = await failure(() => open(context, name, { maxPartBytes: 1000 }));
  assert.equal(error.code, "OutOfMemory");
});
