/**
 * What a decoded token takes in instructions, counted while it is computed: the module's own text with counting functions in the
 * place of some instructions. No load on the machine changes these numbers.
 */

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { load } from "ternlight/edge";

const path = (name: string) => fileURLToPath(new URL(`../../${name}`, import.meta.url));
const run = (tool: string, ...args: string[]) =>
  promisify(execFile)(process.execPath, [path(`../node_modules/.bin/${tool}`), ...FEATURES, ...args], {
    maxBuffer: 1 << 30,
  });

const FEATURES = ["simd", "relaxed-simd", "bulk-memory", "nontrapping-float-to-int", "sign-ext", "mutable-globals"]
  .concat("reference-types", "multivalue")
  .map((name) => `--enable-${name}`);

/** What makes 16 products of ternary weights: the strict instruction set looks up 16 halves of a sum of two. */
const PRODUCTS = { "single-relaxed": "i32x4.relaxed_dot_i8x16_i7x16_add_s", "single-simd128": "i8x16.swizzle" };

/** With exported numbers, `counted dots`, `counted loads` and `counted stores`: of {@link PRODUCTS}, and of vectors from memory and to it. */
async function counting(flavour: keyof typeof PRODUCTS): Promise<WebAssembly.Module> {
  const dot = PRODUCTS[flavour];
  const folder = await mkdtemp(join(tmpdir(), "ternlight-counts-"));
  try {
    const added = new Map<string, string>();
    const operands = (count: number) => Array.from({ length: count }, (_, i) => `(local.get ${i})`).join(" ");
    const counted = (global: string, instruction: string, params: string, result: string) => {
      const name = `$counted ${instruction}`.replaceAll(/[ =.]/g, "-");
      const bump = `(global.set $${global} (i32.add (global.get $${global}) (i32.const 1)))`;
      const work = `(${instruction} ${operands(params.split(" ").length)})`;
      added.set(name, `(func ${name} (param ${params})${result} ${bump} ${work})`);
      return `(call ${name}`;
    };
    const three = dot.includes("relaxed") ? "v128 v128 v128" : "v128 v128";
    const text = (await run("wasm-dis", path(`dist/${flavour}.wasm`))).stdout
      .replaceAll(`(${dot}`, () => counted("dots", dot, three, " (result v128)"))
      .replaceAll(/\((v128\.load(?: (?:offset|align)=\d+)*)(?=\s)/g, (_, found) =>
        counted("loads", found, "i32", " (result v128)"),
      )
      .replaceAll(/\((v128\.store(?: (?:offset|align)=\d+)*)(?=\s)/g, (_, found) =>
        counted("stores", found, "i32 v128", ""),
      );
    const globals = ["dots", "loads", "stores"].map(
      (name) => `(global $${name} (export "counted ${name}") (mut i32) (i32.const 0))`,
    );
    const [wat, wasm] = [join(folder, "counting.wat"), join(folder, "counting.wasm")];
    await writeFile(wat, `${text.trimEnd().slice(0, -1)}\n${[...globals, ...added.values()].join("\n")}\n)`);
    await run("wasm-as", wat, "-o", wasm);
    // What tells the package which build it is.
    const section = [7, ...Buffer.from("flavour"), ...Buffer.from(flavour)];
    return await WebAssembly.compile(
      Buffer.concat([await readFile(wasm), Buffer.from([0, section.length, ...section])]),
    );
  } finally {
    await rm(folder, { recursive: true });
  }
}

/** Counts of one token, by the difference of two answers: one of 10 tokens, and one of 10 more. */
async function perToken(flavour: keyof typeof PRODUCTS) {
  const instances: WebAssembly.Instance[] = [];
  const { Instance } = WebAssembly;
  WebAssembly.Instance = new Proxy(Instance, {
    construct(target, args) {
      const made = new target(...(args as ConstructorParameters<typeof Instance>));
      instances.push(made);
      return made;
    },
  });
  try {
    const names = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"];
    const files = names.map(async (name) => [
      name,
      new Uint8Array(await readFile(path(`models/ternlight-demo/${name}`))),
    ]);
    // On processors that sum pairs better these would not be the instructions that are counted.
    const options = { wasm: await counting(flavour), dotProduct: "dot4" } as const;
    const model = await load(Object.fromEntries(await Promise.all(files)), options);
    const totals = () =>
      (["dots", "loads", "stores"] as const).map((name) => {
        const numbers = instances.map(
          ({ exports }) => (exports[`counted ${name}`] as WebAssembly.Global).value as number,
        );
        return numbers.reduce((sum, number) => sum + number, 0);
      });
    const answer = async (maxTokens: number) => {
      const before = totals();
      await model.generate([1, 2, 3], { temperature: 0, ignoreEos: true, maxTokens }).finished;
      return totals().map((now, i) => now - before[i]!);
    };
    // Its prompt is kept for the others, so that they are alike.
    await answer(1);
    const [short, long] = [await answer(10), await answer(20)];
    await model.close();
    const [dots, loads, stores] = long.map((number, i) => (number - short[i]!) / 10) as [number, number, number];
    return { dots, loads, stores, info: model.info };
  } finally {
    WebAssembly.Instance = Instance;
  }
}

for (const [flavour, tables] of [
  ["single-relaxed", 0],
  // A table of 16 sums of two products, in two vectors, for every 32 rows.
  ["single-simd128", 2 / (2 * 32)],
] as const) {
  test(`a token's products and bytes in instructions, ${flavour}`, async (context) => {
    const { dots, loads, stores, info } = await perToken(flavour);
    const { hidden, ffn, heads, kvHeads, headSize, layers, vocab } = info.config;
    const ternary = layers * hidden * (2 * heads * headSize + 2 * kvHeads * headSize + 3 * ffn);
    const packed = ternary / 4 + 2 * hidden * vocab;
    const least = packed / 16 + tables * ternary;
    context.diagnostic(`${dots} dots, ${loads} loads, ${stores} stores; ${ternary} products, ${packed} bytes`);
    assert.equal(dots, ternary / 16, "each product once, and none of padding");
    // Besides the weights: activations, keys and values, results. A kernel whose sums do not stay in registers doubles both.
    assert.ok(loads >= least && loads < 1.25 * least, `${loads} loads of 16 bytes, ${least} at least`);
    assert.ok(stores < 0.15 * loads, `${stores} stores beside ${loads} loads`);
  });
}
