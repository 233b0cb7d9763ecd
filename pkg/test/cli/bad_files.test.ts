import assert from "node:assert/strict";
import { cp, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import {
  dataStart,
  dropLastTensor,
  renameTensor,
  retypeTensor,
  safetensorsStart,
  tableStart,
  tensorStart,
  withHeader,
} from "./support/spoil.ts";
import { DEMO, failure, json, path } from "./support/ternlight.ts";

const folder = await mkdtemp(join(tmpdir(), "ternlight-"));
after(() => rm(folder, { recursive: true }));

const ternary = await readFile(path("tests/golden/gguf/onebitllm_style.TQ2_0.gguf"));
const weights = await readFile(path(`pkg/models/${DEMO}/model.safetensors`));
const FFN = "blk.1.ffn_up.weight";
const Q = "model.layers.2.self_attn.q_proj.weight";
const SCALE = `${Q}_scale`;
const NORM = "model.norm.weight";

type Bytes = Uint8Array<ArrayBuffer>;
/** Returns another file, or changes the one given. */
type Spoil = (bytes: Bytes) => unknown;
type Case = [what: string, code: string, where: RegExp, spoil: Spoil];

/** NaN as an f16, at the end of a block of TQ2_0; as a bf16. */
const NAN_F16 = [0x00, 0x7e];
const NAN_BF16 = [0xc0, 0x7f];

const gguf: Case[] = [
  ["an empty file", "BadMagic|Truncated", /./, () => new Uint8Array(0)],
  ["cut within its magic", "BadMagic|Truncated", /./, (bytes) => bytes.subarray(0, 3)],
  ["cut within its first numbers", "Truncated", /./, (bytes) => bytes.subarray(0, 20)],
  ["cut within its metadata", "Truncated", /./, (bytes) => bytes.subarray(0, tableStart(bytes) - 100)],
  ["cut within its tensor table", "Truncated", /./, (bytes) => bytes.subarray(0, tableStart(bytes) + 100)],
  ["cut before its data", "Truncated", /./, (bytes) => bytes.subarray(0, dataStart(bytes))],
  ["cut within a tensor", "Truncated", /./, (bytes) => bytes.subarray(0, tensorStart(bytes, FFN) + 100)],
  ["without its last byte", "Truncated", /./, (bytes) => bytes.subarray(0, bytes.length - 1)],
  ["with another magic", "BadMagic", /GGUF/, (bytes) => bytes.set([0x47, 0x47, 0x4d, 0x4c])],
  ["of a version to come", "UnsupportedVersion", /9/, (bytes) => bytes.set([9], 4)],
  ["without a tensor", "MissingTensor", /blk\.1\.ffn_up/, dropLastTensor],
  ["with an unknown tensor", "MissingTensor|UnsupportedSetting", /lk\.1\.ffn_up/, (bytes) => renameTensor(bytes, FFN)],
  ["with an unknown type", "UnsupportedType", /blk\.1\.ffn_up.*99/, (bytes) => retypeTensor(bytes, FFN, 99)],
  ["with a type of another size", "BadHeader|ShapeMismatch|Truncated", /./, (bytes) => retypeTensor(bytes, FFN, 0)],
  ["with a NaN scale", "NonFinite", /blk\.1\.ffn_up/, (bytes) => bytes.set(NAN_F16, tensorStart(bytes, FFN) + 64)],
  ["with counts beyond the file", "Truncated|BadHeader", /./, (bytes) => bytes.fill(0xff, 8, 15)],
];

const safetensors: Case[] = [
  ["cut within its header", "Truncated", /./, (bytes) => bytes.subarray(0, 1000)],
  ["cut within its data", "Truncated", /./, (bytes) => bytes.subarray(0, bytes.length / 2)],
  ["without its last byte", "Truncated", /./, (bytes) => bytes.subarray(0, bytes.length - 1)],
  ["of another kind", "BadMagic", /./, (bytes) => bytes.fill(0x20, 0, 64)],
  ["without a tensor", "MissingTensor", /2\.self_attn\.q_proj/, (bytes) => withHeader(bytes, (all) => delete all[Q])],
  [
    "without a scale",
    "MissingTensor",
    /2\.self_attn\.q_proj/,
    (bytes) => withHeader(bytes, (all) => delete all[SCALE]),
  ],
  [
    "with an unknown type",
    "UnsupportedType|BadHeader",
    /U9/,
    (bytes) => withHeader(bytes, (all) => Object.assign(all[Q] as object, { dtype: "U9" })),
  ],
  [
    "with offsets beyond JavaScript's numbers",
    "BadHeader|Truncated",
    /q_proj/,
    (bytes) =>
      withHeader(bytes, (all) => Object.assign(all[Q] as object, { data_offsets: [2 ** 60, 2 ** 60 + 2 ** 12] })),
  ],
  ["with a NaN scale", "NonFinite", /q_proj/, (bytes) => bytes.set(NAN_BF16, safetensorsStart(bytes, SCALE))],
  ["with a NaN in a norm", "NonFinite", /model\.norm/, (bytes) => bytes.set(NAN_BF16, safetensorsStart(bytes, NORM))],
];

/** What the tool that looks for damage says is what a load says, of the forms that it does not find by itself. */
const HEADER = ["Truncated", "BadMagic"];

async function check(model: string, [, codes, where]: Case): Promise<void> {
  const error = await failure(1, "run", model, "--ids", "1", "-n", "1");
  assert.ok(codes.split("|").includes(error.code), `${error.code}: ${error.message}`);
  assert.match(error.message, where);
  if (!HEADER.includes(error.code)) return;
  const checked = await failure(1, "inspect", "--check", model);
  assert.equal(checked.code, error.code, checked.message);
  assert.ok(checked.detail.file && !/ -\d/.test(checked.message), checked.message);
}

test("a GGUF file", async (context) => {
  for (const one of gguf) {
    await context.test(one[0], async () => {
      const bytes = new Uint8Array(ternary);
      const changed = one[3](bytes);
      const file = join(folder, "model.gguf");
      await writeFile(file, changed instanceof Uint8Array ? changed : bytes);
      await check(file, one);
    });
  }
});

test("a folder with safetensors", async (context) => {
  const model = join(folder, "model");
  await cp(path(`pkg/models/${DEMO}`), model, { recursive: true });
  for (const one of safetensors) {
    await context.test(one[0], async () => {
      const bytes = new Uint8Array(weights);
      const changed = one[3](bytes);
      await writeFile(join(model, "model.safetensors"), changed instanceof Uint8Array ? changed : bytes);
      await check(model, one);
    });
  }
});

test("the files beside the weights", async (context) => {
  const spoilt = async (name: string, change: (text: string) => string) => {
    const model = await mkdtemp(join(folder, "model-"));
    await cp(path(`pkg/models/${DEMO}`), model, { recursive: true });
    await writeFile(join(model, name), change(await readFile(join(model, name), "utf8")));
    return failure(1, "run", model, "-p", "Once", "-n", "1");
  };
  await context.test("a config.json that is no JSON", async () => {
    const { code, detail } = await spoilt("config.json", (text) => text.slice(0, 100));
    assert.equal(code, "BadHeader");
    assert.equal(detail.file, "config.json");
  });
  await context.test("an architecture of no kind that we run", async () => {
    const { code, message } = await spoilt("config.json", (text) =>
      text.replace("BitNetForCausalLM", "MambaForCausalLM"),
    );
    assert.equal(code, "UnsupportedArchitecture");
    assert.match(message, /MambaForCausalLM/);
  });
  await context.test("a config.json that lacks a field", async () => {
    const { code, message } = await spoilt("config.json", (text) => text.replace('"num_hidden_layers": 6,', ""));
    assert.equal(code, "MissingKey");
    assert.match(message, /num_hidden_layers/);
  });
  await context.test("a size that does not fit the tensors", async () => {
    const { code } = await spoilt("config.json", (text) => text.replace('"hidden_size": 256', '"hidden_size": 512'));
    assert.equal(code, "ShapeMismatch");
  });
  await context.test("a tokenizer.json that is cut", async () => {
    const { code, detail } = await spoilt("tokenizer.json", (text) => text.slice(0, 5000));
    assert.equal(code, "BadHeader");
    assert.equal(detail.file, "tokenizer.json");
  });
  await context.test("a tokenizer.json of another kind", async () => {
    const { code } = await spoilt("tokenizer.json", () => '{ "model": { "type": "Riddle" } }');
    assert.match(code, /Tokenizer/);
  });
});

test("a model without a tokenizer runs on ids and says what a text needs", async () => {
  const model = await mkdtemp(join(folder, "bare-"));
  await cp(path(`pkg/models/${DEMO}`), model, { recursive: true });
  await rm(join(model, "tokenizer.json"));
  const { tokens, text } = await json("run", model, "--ids", "2343,821,259,522", "-n", "3", "--temp", "0");
  assert.deepEqual(tokens, [441, 1113, 259]);
  assert.equal(text, "");
  assert.equal((await failure(1, "run", model, "-p", "Once")).code, "MissingTokenizer");
});

test("what the model cannot take", async () => {
  const empty = await mkdtemp(join(folder, "empty-"));
  const cases: [string, RegExp, string[]][] = [
    ["NotFound", /nowhere/, ["run", "nowhere", "-p", "a"]],
    ["NotFound", /no GGUF file and no safetensors/, ["run", empty, "-p", "a"]],
    ["InvalidArgument", /is not a URL/, ["run", "http://[half", "-p", "a"]],
    ["NotFound", /nowhere/, ["perplexity", DEMO, "nowhere"]],
    ["InvalidArgument", /below 4096.*5000/, ["run", DEMO, "--ids", "5000"]],
    ["InvalidArgument", /prompt is empty/, ["run", DEMO, "-p", ""]],
    ["ContextFull", /at most 4 .* 5$/, ["run", DEMO, "--ids", "1,2,3,4,5", "--context", "4"]],
    ["InvalidArgument", /contextLength.*1 to 512/, ["run", DEMO, "--ids", "1", "--context", "1000000"]],
  ];
  for (const [code, message, args] of cases) {
    const error = await failure(1, ...args);
    assert.equal(error.code, code, error.message);
    assert.match(error.message, message);
  }
});
