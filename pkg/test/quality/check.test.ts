/** Every rule of a check against a file that breaks it, and what a fix makes of that file. */

import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { readFile, stat, symlink, writeFile } from "node:fs/promises";
import path from "node:path";
import { test } from "node:test";
import { EngineError, load } from "ternlight";
import { type Checkup, check, type Rule, slice } from "ternlight/quality";
import { half } from "../../src/source/floats.ts";
import { json, ternlight } from "../cli/support/ternlight.ts";
import { contents } from "../convert/support/convert.ts";
import { mlxFolder } from "../convert/support/mlx.ts";
import { folderOf, goldenFile, goldenFolder, goldenPath, logitsOf } from "../source/support/models.ts";
import { splitGguf } from "../source/support/split.ts";
import { bytesOf, rebuilt, spoilt, type Tensor, trained } from "./support/craft.ts";

const ternary = () => goldenFile("gguf/onebitllm_style.TQ2_0.gguf");
const chat = () => goldenFile("gguf/llama_f32.F32.gguf");
const rules = ({ findings }: Pick<Checkup, "findings">) => [...new Set(findings.map(({ rule }) => rule))].sort();

/** What is found in a file, and in what the fix makes of it. */
async function checked(file: Uint8Array<ArrayBuffer>, rule: Rule) {
  const options = { run: rule === "rope" };
  const before = await check(file, options);
  const found = before.findings.filter((finding) => finding.rule === rule);
  assert.ok(found.length > 0, `${rule}: ${JSON.stringify(before)}`);
  for (const { message, advice } of found) assert.ok(message !== "" && advice !== "");
  const mended = before.mended && (await bytesOf(before.mended));
  assert.equal(
    mended !== null,
    before.findings.some(({ fixable }) => fixable),
  );
  return { found, all: before.findings, mended, after: mended && (await check(mended, options)) };
}

const KNOWN: Record<string, Rule[]> = {
  "bitnet_packed.b158.I2_S": ["bos-twice", "pre-tokenizer"],
  "onebitllm_style.F16": ["dense-ternary"],
  // Its EOS ends texts; turns end in <|eot_id|>, which the header does not name.
  "llama_bitlinear.I2_S": ["eos-unwritten"],
  "llama_bitlinear.TQ1_0": ["eos-unwritten"],
  "llama_bitlinear.TQ2_0": ["eos-unwritten"],
};

test("golden files are clean, but for what is known of some", async () => {
  const names = readdirSync(goldenPath("gguf")).filter((name) => name.endsWith(".gguf"));
  assert.ok(names.length > 15);
  for (const name of names) {
    const found = await check(goldenPath(`gguf/${name}`), { run: false });
    assert.deepEqual(rules(found), KNOWN[name.replace(".gguf", "")] ?? [], name);
  }
  const folders = { bitnet_packed: ["eos-unwritten"], onebitllm_style: [], llama_f32: [], qwen3: [] };
  for (const [model, known] of Object.entries(folders)) {
    assert.deepEqual(rules(await check(goldenPath(`models/${model}/`))), known, model);
  }
});

test("pre-tokenizer: missing, not known, or of another vocabulary", async () => {
  const demo = trained();
  const key = "tokenizer.ggml.pre";
  const right = contents(demo).metadata.get(key);
  for (const value of [null, "my-own", "default"]) {
    const { found, mended, after } = await checked(rebuilt(demo, { keys: { [key]: value } }), "pre-tokenizer");
    assert.equal(found[0]!.key, key, String(value));
    assert.equal(contents(mended!).metadata.get(key), right, String(value));
    assert.deepEqual(rules(after!), []);
  }
});

const CHATML =
  "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}";
const PROMPT = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
const TEMPLATE = "tokenizer.chat_template";

/** A vocabulary whose last tokens are ChatML's. */
async function chatml(template: string, more: Record<string, number | boolean | string> = {}) {
  const file = await chat();
  const text = contents(file).metadata;
  const { readStrings, readNumbers } = await import("../../src/text/gguf.ts");
  const tokens = readStrings(text, "tokenizer.ggml.tokens", 1e6)!;
  const types = Int32Array.from(readNumbers(text, "tokenizer.ggml.token_type", 1e6)!);
  const names = ["<|im_start|>", "<|im_end|>", "<s>", "<|stop|>"].filter((name) => !tokens.includes(name));
  for (const [i, name] of names.entries()) {
    tokens[tokens.length - 1 - i] = name;
    types[tokens.length - 1 - i] = 3;
  }
  const id = (name: string) => tokens.indexOf(name);
  const keys = {
    "tokenizer.ggml.tokens": tokens,
    "tokenizer.ggml.token_type": types,
    "tokenizer.ggml.merges": readStrings(text, "tokenizer.ggml.merges", 1e6)!.filter((merge) =>
      tokens.includes(merge.replace(" ", "")),
    ),
    "tokenizer.ggml.eos_token_id": id("<|im_end|>"),
    "tokenizer.ggml.bos_token_id": id("<s>"),
    "tokenizer.ggml.add_bos_token": false,
    [TEMPLATE]: template,
  };
  return { file: rebuilt(file, { keys: { ...keys, ...more } }), id };
}

test("a chat template in order gives no finding", async () => {
  const { file } = await chatml(CHATML + PROMPT);
  assert.deepEqual(rules(await check(file)), []);
});

test("template-eos: a template that ends where the answer should begin", async () => {
  for (const end of ["{{ eos_token }}", "<|im_end|>"]) {
    const { file } = await chatml(CHATML + PROMPT + end);
    const { mended, after } = await checked(file, "template-eos");
    assert.deepEqual(rules(after!), [], end);
    assert.ok(String(contents(mended!).metadata.get(TEMPLATE)).includes("add_generation_prompt"));
  }
});

test("generation-prompt: a template without one gets the words that it writes before an answer", async () => {
  const { file } = await chatml(CHATML);
  const { mended, after } = await checked(file, "generation-prompt");
  assert.deepEqual(rules(after!), []);
  const template = String(contents(mended!).metadata.get(TEMPLATE));
  assert.ok(template.startsWith(CHATML) && template.includes("<|im_start|>assistant\\n"));
  // Llama 2's template has none and needs none.
  const { file: llama2 } = await chatml(
    "{% for message in messages %}{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}{% else %}{{ ' ' + message['content'] + eos_token }}{% endif %}{% endfor %}",
  );
  assert.deepEqual(rules(await check(llama2)), []);
});

test("eos-unwritten: an EOS that no template writes", async () => {
  const { id } = await chatml(CHATML + PROMPT);
  const { file } = await chatml(CHATML.replace("<|im_end|>", "<|stop|>") + PROMPT);
  const { mended, after, found } = await checked(file, "eos-unwritten");
  assert.equal(found[0]!.level, "error");
  assert.equal(contents(mended!).metadata.get("tokenizer.ggml.eot_token_id"), id("<|stop|>"));
  assert.deepEqual(rules(after!), []);
});

test("bos-twice: a tokenizer and a template that both write BOS, and a template that writes two", async () => {
  const added = await chatml(`{{ bos_token }}${CHATML}${PROMPT}`, { "tokenizer.ggml.add_bos_token": true });
  const one = await checked(added.file, "bos-twice");
  assert.equal(contents(one.mended!).metadata.get("tokenizer.ggml.add_bos_token"), false);
  assert.deepEqual(rules(one.after!), []);
  const twice = await checked((await chatml(`{{ bos_token }}<s>${CHATML}${PROMPT}`)).file, "bos-twice");
  assert.deepEqual(rules(twice.after!), []);
});

test("several findings of one template are mended together", async () => {
  const { file } = await chatml(`{{ bos_token }}{{ bos_token }}${CHATML.replace("<|im_end|>", "<|stop|>")}`);
  const { all, after } = await checked(file, "generation-prompt");
  assert.deepEqual(rules({ findings: all }), ["bos-twice", "eos-unwritten", "generation-prompt"]);
  assert.deepEqual(rules(after!), []);
});

test("head: a tied one stored twice, too few rows, and one that is missing", async () => {
  const demo = trained();
  const embedding = (tensors: Tensor[]) => tensors.find(({ name }) => name === "token_embd.weight")!;
  const twice = rebuilt(demo, { tensors: (all) => [...all, { ...embedding(all), name: "output.weight" }] });
  const { mended, after } = await checked(twice, "head");
  assert.deepEqual(rules(after!), []);
  assert.deepEqual(await logitsOf(mended!), await logitsOf(demo));
  // The count of parameters in the header tells of a head that is gone.
  const own = await goldenFile("gguf/llama_bitlinear.TQ2_0.gguf");
  const gone = rebuilt(own, { tensors: (all) => all.filter(({ name }) => name !== "output.weight") });
  assert.equal((await checked(gone, "head")).found[0]!.key, "general.size_label");
  const short = (tensors: Tensor[]) =>
    tensors.map((tensor) => {
      if (tensor.name !== "token_embd.weight") return tensor;
      const [columns, rows] = tensor.dims as [number, number];
      return { ...tensor, dims: [columns, rows - 2], data: tensor.data.subarray(0, tensor.data.length - 4 * columns) };
    });
  await checked(rebuilt(demo, { tensors: short }), "head");
  const files = await goldenFolder("models/bitnet_packed");
  const config = JSON.parse(new TextDecoder().decode(files["config.json"]));
  files["config.json"] = new TextEncoder().encode(JSON.stringify({ ...config, tie_word_embeddings: false }));
  const { findings } = await check(Object.fromEntries(Object.entries(files).map(([name, bytes]) => [name, bytes])));
  assert.ok(findings.some(({ rule, key }) => rule === "head" && key === "tie_word_embeddings"));
});

const DOWN = "blk.1.ffn_down.weight";

test("scales: zero, NaN or far off; the one that all others have is written back", async () => {
  const file = await ternary();
  for (const bits of [0, 0x7e00, 0x7bff]) {
    const broken = rebuilt(file, { tensors: spoilt(DOWN, (_, view) => view.setUint16(66 * 3 + 64, bits, true)) });
    const { found, mended, after } = await checked(broken, "scales");
    assert.equal(found[0]!.tensor, DOWN);
    assert.ok(found[0]!.message.includes("block 3"), found[0]!.message);
    assert.deepEqual(rules(after!), []);
    assert.deepEqual(await logitsOf(mended!), await logitsOf(file));
  }
  const norm = rebuilt(file, { tensors: spoilt("blk.0.attn_norm.weight", (data) => data.fill(0)) });
  assert.equal((await checked(norm, "scales")).mended, null);
  const signs = await goldenFile("gguf/qwen3.Q1_0_all.gguf");
  for (const [name, bits, found] of [
    ["token_embd.weight", 1, []],
    ["token_embd.weight", 0x7bff, ["scales"]],
    ["blk.0.ffn_up.weight", 1, ["scales"]],
  ] as const) {
    const changed = rebuilt(signs, { tensors: spoilt(name, (_, view) => view.setUint16(18 * 5, bits, true)) });
    assert.deepEqual(rules(await check(changed, { run: false })), found, `${name} ${bits}`);
  }
  // One scale for a whole tensor: nothing says what it was.
  const whole = await goldenFile("gguf/onebitllm_style.I2_S.gguf");
  const nan = rebuilt(whole, {
    tensors: spoilt(DOWN, (data, view) => {
      const length = contents(whole).tensors.get(DOWN)!.data.length - 4;
      view.setFloat32(length, Number.NaN, true);
      assert.ok(data.length >= length + 4);
    }),
  });
  assert.equal((await checked(nan, "scales")).found[0]!.fixable, false);
  const demo = trained("--type", "i2_s");
  const far = rebuilt(demo, {
    tensors: spoilt(DOWN, (_, view) => {
      const length = contents(demo).tensors.get(DOWN)!.data.length - 4;
      view.setFloat32(length, 5000 * view.getFloat32(length, true), true);
    }),
  });
  assert.equal((await checked(far, "scales")).found[0]!.tensor, DOWN);
});

test("one-code and code-3: codes that no training leaves behind", async () => {
  const file = await ternary();
  const zeros = (data: Uint8Array) => {
    for (let at = 0; at < data.length; at++) if (at % 66 < 64) data[at] = 0x55;
  };
  assert.equal((await checked(rebuilt(file, { tensors: spoilt(DOWN, zeros) }), "one-code")).found[0]!.tensor, DOWN);
  const three = (data: Uint8Array) => {
    data[5]! |= 3;
  };
  const { found } = await checked(rebuilt(file, { tensors: spoilt(DOWN, three) }), "code-3");
  assert.equal(found[0]!.tensor, DOWN);
  assert.match(found[0]!.message, /code 3 in 1 places/);
});

test("i2s-order: codes as ARM builds wrote them are put in the order that others read", async () => {
  const demo = trained("--type", "i2_s");
  /** Two groups of 64 in place of one of 128. */
  const arm = (tensors: Tensor[]) =>
    tensors.map((tensor) => {
      if (tensor.type !== 36) return tensor;
      const data = tensor.data.slice();
      const count = tensor.dims.reduce((all, dim) => all * dim, 1);
      data.fill(0, 0, count / 4);
      for (let i = 0; i < count; i++) {
        const within = i % 128;
        const code = (tensor.data[32 * Math.floor(i / 128) + (within % 32)]! >> (6 - 2 * Math.floor(within / 32))) & 3;
        const inner = i % 64;
        data[16 * Math.floor(i / 64) + (inner % 16)]! |= code << (6 - 2 * Math.floor(inner / 16));
      }
      return { ...tensor, data };
    });
  const { mended, after } = await checked(rebuilt(demo, { tensors: arm }), "i2s-order");
  assert.deepEqual(rules(after!), []);
  const [ours, expected] = [contents(mended!).tensors, contents(demo).tensors];
  for (const [name, { data }] of expected) assert.deepEqual(ours.get(name)!.data, data, name);
});

/** Rows of queries and keys as converters order them for RoPE on neighbours. */
const turned = (tensors: Tensor[]) =>
  tensors.map((tensor) => {
    if (!/attn_[qk]\.weight$/.test(tensor.name)) return tensor;
    const [head, rows] = [64, tensor.dims[1]!];
    const row = tensor.data.length / rows;
    const data = new Uint8Array(tensor.data.length);
    for (let r = 0; r < rows; r++) {
      const [first, within] = [r - (r % head), r % head];
      const to = first + (within < head / 2 ? 2 * within : 2 * (within - head / 2) + 1);
      data.set(tensor.data.subarray(r * row, (r + 1) * row), to * row);
    }
    return { ...tensor, data };
  });

test("a scale and weights in floats are mended in tensors whose rows move too, and the command says what is left", async (context) => {
  const demo = trained();
  const [broken, dense] = ["blk.1.attn_q.weight", "blk.2.attn_k.weight"];
  const spoil = (tensors: Tensor[]) =>
    spoilt(broken, (_, view) => view.setUint16(33 * 66 + 64, 0, true))(turned(tensors).map(inFloats));
  /** TQ2_0 as F32. */
  const inFloats = (tensor: Tensor): Tensor => {
    if (tensor.name !== dense) return tensor;
    const blocks = tensor.data.length / 66;
    const out = new DataView(new ArrayBuffer(blocks * 1024));
    for (let at = 0; at < blocks * 256; at++) {
      const [block, within] = [tensor.data.subarray(66 * (at >> 8), 66 * (at >> 8) + 66), at & 255];
      const code = (block[32 * (within >> 7) + (within & 31)]! >> (2 * ((within & 127) >> 5))) & 3;
      out.setFloat32(4 * at, (code - 1) * half(block[64]! | (block[65]! << 8)), true);
    }
    return { ...tensor, type: 0, data: new Uint8Array(out.buffer) };
  };
  const file = rebuilt(demo, { tensors: spoil });
  const { mended, after, all } = await checked(file, "rope");
  assert.deepEqual(rules({ findings: all }), ["dense-ternary", "rope", "scales"]);
  assert.deepEqual(rules(after!), []);
  const [ours, theirs] = [contents(mended!).tensors, contents(demo).tensors];
  for (const [name, { data }] of theirs) assert.deepEqual(ours.get(name)!.data, data, name);
  // Codes that are lost cannot be mended, and are found again in the new file.
  const lost = rebuilt(file, {
    tensors: spoilt("blk.0.ffn_up.weight", (data) => data.fill(0x55, 0, 64).fill(0xff, 0, 1)),
  });
  const folder = await folderOf(context, { "model.gguf": lost });
  const { status, stdout } = await ternlight("inspect", "--check", "--fix", path.join(folder, "model.gguf"));
  assert.equal(status, 1);
  assert.equal(stdout.match(/^ {2}mended$/gm)!.length, 3);
  assert.match(stdout, /code-3: blk\.0\.ffn_up.*\n {2}convert the model anew/);
  assert.match(stdout, /, 1 finding left$/m);
});

test("rope: queries and keys in the order of the other style are found by perplexity, and put back", async () => {
  const demo = trained();
  const { mended, after, found } = await checked(rebuilt(demo, { tensors: turned }), "rope");
  assert.match(found[0]!.message, /perplexity/);
  assert.deepEqual(rules(after!), []);
  assert.deepEqual(await logitsOf(mended!), await logitsOf(demo));
});

test("dense-ternary: ternary weights in floats become TQ2_0, with the same values", async () => {
  const file = await goldenFile("gguf/onebitllm_style.F16.gguf");
  const { found, mended, after } = await checked(file, "dense-ternary");
  assert.equal(found.length, 14);
  assert.ok(mended!.length < file.length);
  assert.deepEqual(rules(after!), []);
  const [ours, theirs] = [contents(mended!).tensors, contents(await ternary()).tensors];
  for (const { tensor } of found) assert.deepEqual(ours.get(tensor!), theirs.get(tensor!), tensor);
});

test("dense-ternary: masters of BitNet in a GGUF are no weights that it computes with", async () => {
  const file = await goldenFile("gguf/onebitllm_style.F16.gguf");
  const master = rebuilt(file, { tensors: spoilt(DOWN, (_, view) => view.setUint16(0, 0x3c01, true)) });
  const { found, after } = await checked(master, "dense-ternary");
  const wrong = [{ level: "error", tensor: DOWN, fixable: false }];
  const told = (all: typeof found) => all.map(({ level, tensor, fixable }) => ({ level, tensor, fixable }));
  assert.deepEqual(told(found.filter(({ level }) => level === "error")), wrong);
  assert.match(found.find(({ tensor }) => tensor === DOWN)!.advice, /safetensors/);
  assert.deepEqual(told(after!.findings), wrong);
});

test("rules that were not looked at are told, with the reason", async (context) => {
  const template = ["template-eos", "generation-prompt", "eos-unwritten", "bos-twice"];
  const told = async (source: Parameters<typeof check>[0], reason: RegExp) => {
    const { unchecked } = await check(source, { run: false });
    return unchecked.flatMap((one) => (reason.test(one.reason) ? [one.rule] : []));
  };
  const demo = trained();
  assert.deepEqual(await told(demo, /no chat template/), template);
  const none = rebuilt(demo, { keys: { "tokenizer.ggml.model": null } });
  assert.deepEqual(await told(none, /no tokenizer/), ["pre-tokenizer", ...template]);
  const { file } = await chatml("{% for message in messages %}{{ raise_exception('no') }}{% endfor %}");
  assert.deepEqual(await told(file, /template fails/), ["template-eos", "eos-unwritten", "bos-twice"]);
  assert.deepEqual(await told(goldenPath("models/llama_f32/"), /tokenizer\.json/), ["pre-tokenizer"]);
  assert.deepEqual(await told(await goldenFile("gguf/onebitllm_style.I2_S.gguf"), /groups of 64/), ["i2s-order"]);
  const packed = ["scales", "one-code", "code-3", "dense-ternary"];
  assert.deepEqual(await told(await mlxFolder("qwen3.Q2_0", 2), /of U32 are not looked through/), packed);
  const folder = await folderOf(context, { "model.gguf": demo });
  const { stdout } = await ternlight("inspect", "--check", "--no-weights", path.join(folder, "model.gguf"));
  assert.match(stdout, /^not checked {2}template-eos, generation-prompt, eos-unwritten, bos-twice: the model has no/m);
});

test("the command tells findings, mends a copy and leaves the file alone", async (context) => {
  const broken = rebuilt(await ternary(), {
    tensors: spoilt(DOWN, (_, view) => view.setUint16(64, 0, true)),
  });
  const folder = await folderOf(context, { "model.gguf": broken });
  const model = path.join(folder, "model.gguf");
  const { status, stdout } = await ternlight("inspect", "--check", model);
  assert.equal(status, 1);
  assert.match(stdout, /^error {2}scales: blk\.1\.ffn_down\.weight: /m);
  const { check: told } = await json("inspect", "--check", "--fix", model);
  const fixed = path.join(folder, "model.fixed.gguf");
  const { compared, ...made } = told.fixed;
  assert.deepEqual(made, { file: fixed, bytes: (await stat(fixed)).size, left: [] });
  assert.ok(compared.before.kl === 0 && compared.after.kl > 0);
  assert.deepEqual([compared.before.size, compared.after.size], [broken.length, made.bytes]);
  assert.deepEqual(new Uint8Array(await readFile(model)), broken);
  assert.deepEqual((await json("inspect", "--check", fixed)).check.findings, []);
  const again = await ternlight("inspect", "--check", "--fix", model, "--json");
  assert.equal(JSON.parse(again.stdout).error.code, "Exists");
  const named = path.join(folder, "own.gguf");
  await json("inspect", "--check", "--fix", model, "--output", named);
  assert.deepEqual(await readFile(named), await readFile(fixed));
  assert.equal((await ternlight("inspect", "--fix", model)).status, 2);
  await writeFile(path.join(folder, "none.gguf"), "no model");
  assert.equal((await ternlight("inspect", "--check", path.join(folder, "none.gguf"))).status, 1);
});

test("no tool writes over the model that it compares with", async (context) => {
  const file = await ternary();
  const texts = { "text.txt": new TextEncoder().encode("a b c d"), "m-00002-of-00002.gguf": file.subarray(8) };
  const folder = await folderOf(context, { "model.gguf": file, "m-00001-of-00002.gguf": file, ...texts });
  const names = ["model.gguf", "text.txt", "link.gguf", "m-00001-of-00002.gguf", "m-00002-of-00002.gguf"];
  const [model, text, link, first, second] = names.map((name) => path.join(folder, name));
  await symlink(model!, link!);
  const commands = [
    ["inspect", "--check", "--fix"],
    ["prune", "--calibration-data", text!, "--target-layers", "1"],
    ["slice", "--tokens", text!],
    ["calibrate", "--dataset", text!, "--output-dir", folder],
  ] as const;
  for (const [command, ...flags] of commands) {
    const own = [model!, link!, path.relative(".", model!)].map((out) => [model!, out] as const);
    for (const [from, out] of [...own, [first!, second!] as const]) {
      const { status, stderr } = await ternlight(command, from, ...flags, "--force", "--output", out);
      assert.deepEqual([status, /is the model itself/.test(stderr)], [2, true], `${command} ${stderr}`);
    }
  }
  assert.deepEqual(new Uint8Array(await readFile(model!)), file);
});

test("damaged files end in findings or typed errors, quickly", async () => {
  const file = await chat();
  let seed = 7;
  const random = (below: number) => {
    seed = (seed * 48_271) % 2_147_483_647;
    return seed % below;
  };
  const header = file.length - contents(file).tensors.size;
  for (let run = 0; run < 200; run++) {
    const damaged = file.slice(0, run % 4 === 0 ? random(file.length) : file.length);
    // Most of what a reader trusts stands at the beginning: counts, lengths and types.
    for (let i = 0; i < 1 + random(4); i++) damaged[random(run % 2 ? 2000 : header) % damaged.length] = random(256);
    const tools = [
      () => check(damaged, { run: false }),
      () => slice(damaged, { tokens: [1] }).then(({ file }) => bytesOf(file)),
    ];
    for (const tool of tools) {
      await tool().catch((error) => assert.ok(error instanceof EngineError, `${run}: ${error.stack}`));
    }
  }
});

test("a model in parts is checked and cut as one", async () => {
  const parts = splitGguf(await ternary(), "model", 3);
  assert.deepEqual(rules(await check(parts)), []);
  const { file } = await slice(parts, { tokens: [300, 301] });
  const cut = await bytesOf(file);
  assert.equal(contents(cut).metadata.get("split.count"), undefined);
  assert.equal((await logitsOf(cut)).length, 8);
});

test("an I2_S file that ends behind the last scale, without its padding, is whole; one byte less is a cut", async () => {
  const byType = (all: Tensor[]) => all.toSorted((a, b) => Number(a.type === 36) - Number(b.type === 36));
  const file = rebuilt(await goldenFile("gguf/bitnet_packed.b158.I2_S.gguf"), { tensors: byType });
  const whole = file.subarray(0, file.length - 28);
  await (await load(whole, { threads: 1 })).close();
  assert.deepEqual((await check(whole)).findings, (await check(file)).findings);
  const cut = file.subarray(0, file.length - 29);
  for (const read of [() => load(cut, { threads: 1 }), () => check(cut)])
    await assert.rejects(read, (error: EngineError) => error.code === "Truncated" && error.detail.tensor !== undefined);
});
