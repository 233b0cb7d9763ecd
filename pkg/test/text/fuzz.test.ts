/**
 * Tokenizers, configurations, GGUF metadata and templates that a seed has made up: good ones with parts changed, in the way in which
 * files break and people break them. Every case ends soon, in a result or in an error of ours, and takes no memory that its input does
 * not account for. `HOSTILE_CASES=50000` is what `make soak` does.
 */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { loadText } from "../../src/host/text.ts";
import { fromGguf } from "../../src/text/from_gguf.ts";
import type { GgufArray, GgufText } from "../../src/text/gguf.ts";
import { Tokenizer } from "../../src/text/tokenizer.ts";
import type { TokenizerConfig, TokenizerJson } from "../../src/text/tokenizer_json.ts";
import { EngineError } from "../../src/types/errors.ts";
import type { ChatMessage } from "../../src/types/index.ts";
import { guardOf, platform, templateOf } from "./support/chat.ts";
import { stopwatch } from "./support/check.ts";
import { chatTemplates, fixture, ggufFile, tokenizerFiles } from "./support/golden.ts";
import { random } from "./support/random.ts";

const CASES = Number(process.env.HOSTILE_CASES ?? 400);
/** The first seed: another one goes on where an earlier run ended. */
const FIRST = Number(process.env.HOSTILE_SEED ?? 0);
/** Milliseconds of the processor's time that one case may take: the clock on the wall also counts what other programs do. */
const SOON = 2000;
/** Bytes that all cases together may take: a thousand times the largest input, which the runtime collects in its own time. */
const MEMORY = 768 * 2 ** 20;

type Random = (below: number) => number;
type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

const pick = <T>(next: Random, list: readonly T[]): T => list[next(list.length)] as T;

/** Texts that have broken something before, or might. */
const TEXTS = [
  "",
  " ",
  "a",
  "\n",
  "\u0000",
  "\u2581",
  "\ud800",
  "\uffff",
  "😀",
  "é",
  "<0x41>",
  "__proto__",
  "constructor",
];
TEXTS.push(
  "<|im_end|>",
  "<s>",
  "(a+)+b",
  "[",
  "\\",
  "$&",
  "{{",
  "%}",
  "a".repeat(300),
  "ab ".repeat(5000),
  "\u0301".repeat(2000),
);
const NUMBERS = [0, 1, -1, 0.5, 2 ** 31, 2 ** 32, 2 ** 53, -(2 ** 53), 1e308, 1e-308, 255, 1024, 1048576];
const TYPES = [
  "BPE",
  "Unigram",
  "WordPiece",
  "ByteLevel",
  "Sequence",
  "Split",
  "Replace",
  "Metaspace",
  "Prepend",
  "Strip",
  "NFKC",
];
TYPES.push(
  "Lowercase",
  "ByteFallback",
  "Fuse",
  "TemplateProcessing",
  "BertProcessing",
  "RobertaProcessing",
  "Precompiled",
  "Digits",
);
TYPES.push(
  "Punctuation",
  "Whitespace",
  "WhitespaceSplit",
  "BertNormalizer",
  "StripAccents",
  "NFC",
  "CTC",
  "FixedLength",
  "Nope",
);
const PATTERNS = [
  "(a+)+b",
  "a*",
  "\\s+",
  "\\p{L}+|",
  "[^\\s]+",
  "(?=a)",
  "(?<!a)b",
  "((a|a)*)*",
  "(?i:x)",
  "\\p{N}{1,3}",
  "^|$",
  ".*?",
  "(",
  "[a",
  "a{1,99}{1,99}",
  "\\1",
];

function anything(next: Random, depth = 0): Json {
  const kind = next(depth > 2 ? 6 : 10);
  if (kind < 2) return pick(next, TEXTS);
  if (kind === 2) return pick(next, NUMBERS);
  if (kind === 3) return next(2) === 0;
  if (kind === 4) return null;
  if (kind === 5)
    return { type: pick(next, TYPES), pattern: { Regex: pick(next, PATTERNS) }, content: pick(next, TEXTS) };
  if (kind === 6)
    return {
      type: pick(next, TYPES),
      normalizers: [anything(next, depth + 1)],
      pretokenizers: [anything(next, depth + 1)],
      decoders: [anything(next, depth + 1)],
    };
  if (kind === 7) return Array.from({ length: next(6) }, () => anything(next, depth + 1));
  return Object.fromEntries(
    Array.from({ length: next(6) }, () => [
      pick(next, [...TEXTS.slice(0, 12), "type", "id", "content", "String", "Regex", "vocab"]),
      anything(next, depth + 1),
    ]),
  );
}

/** The value with one part, somewhere in it, replaced, removed, repeated or given another key. */
function changed(next: Random, value: Json): Json {
  if (typeof value !== "object" || value === null || next(12) === 0) {
    if (typeof value === "string" && next(2) === 0) return value.slice(0, next(value.length + 1)) + pick(next, TEXTS);
    if (typeof value === "number" && next(2) === 0) return value + pick(next, [-1, 1, 0.5]);
    return anything(next);
  }
  const keys = Object.keys(value);
  if (keys.length === 0) return anything(next);
  const key = pick(next, keys);
  if (Array.isArray(value)) {
    const copy = [...value];
    const at = Number(key);
    const how = next(8);
    if (how === 0) copy.splice(at, 1);
    else if (how === 1) copy.push(...copy.slice(0, 1 + next(2000)));
    else copy[at] = changed(next, copy[at] as Json);
    return copy;
  }
  const { [key]: part, ...rest } = value;
  const how = next(10);
  if (how === 0) return rest;
  const name = how === 1 ? pick(next, TEXTS) : key;
  return { ...rest, [name]: how === 2 ? anything(next) : changed(next, part as Json) };
}

/** With a small vocabulary, so that a change often hits something else. */
function small(json: TokenizerJson): Json {
  const copy = JSON.parse(JSON.stringify(json));
  const { vocab } = copy.model;
  if (!Array.isArray(vocab)) copy.model.vocab = Object.fromEntries(Object.entries(vocab).slice(0, 300));
  copy.model.merges = copy.model.merges?.slice(0, 40);
  return copy;
}

const files = ["tiny_llama3", "tiny_smollm", "tiny_qwen2", "tiny_llama2"].map((name) => tokenizerFiles(name));
const demo = (name: string) =>
  JSON.parse(readFileSync(new URL(`../../models/ternlight-demo/${name}`, import.meta.url), "utf8"));
files.push({ json: demo("tokenizer.json"), config: demo("tokenizer_config.json") });
const unigram = {
  model: {
    type: "Unigram",
    unk_id: 0,
    vocab: [
      ["<unk>", 0],
      ["\u2581", -1],
      ["a", -2],
      ["ab", -1.5],
      ["\u2581a", -3],
      ["b", -9],
    ],
  },
  normalizer: {
    type: "Sequence",
    normalizers: [{ type: "NFKC" }, { type: "Replace", pattern: { Regex: " {2,}" }, content: " " }],
  },
  pre_tokenizer: { type: "Metaspace", replacement: "\u2581", prepend_scheme: "always" },
  decoder: { type: "Metaspace", replacement: "\u2581" },
  post_processor: {
    type: "TemplateProcessing",
    single: [{ Sequence: { id: "A", type_id: 0 } }, { SpecialToken: { id: "<unk>", type_id: 0 } }],
    pair: [],
    special_tokens: {},
  },
  added_tokens: [{ id: 0, content: "<unk>", special: true }],
};
const TOKENIZERS: readonly { json: Json; config: Json }[] = [
  ...files.map(({ json, config }) => ({ json: small(json), config: config as Json })),
  { json: unigram as unknown as Json, config: { unk_token: "<unk>", eos_token: "<unk>" } },
];
const INPUTS = [
  "",
  "Hello world",
  "größer  als\n\n12345 \u2581",
  "a".repeat(3000),
  `${"ab".repeat(1500)}!`,
  "<|im_end|></s><unk>\u0000\ud800",
  " \t ".repeat(800),
];

/** What a loaded tokenizer is asked for. */
function use(tokenizer: Tokenizer): void {
  for (const text of INPUTS) {
    const ids = tokenizer.encode(text);
    assert.ok(ids.every((id) => Number.isInteger(id) && id >= 0));
    assert.ok(ids.length <= 8 * text.length + (1 << 20), `${ids.length} ids of ${text.length} characters`);
    tokenizer.decode(ids.slice(0, 500));
  }
  tokenizer.encode("a <|im_end|> b", { seams: [3, 7] });
  guardOf(tokenizer).mark("a <|im_end|>");
}

/** Runs a test's cases; what they ended in is counted, so that a generator that only makes nonsense is seen. */
function all(name: string, right: number, one: (next: Random) => void | Promise<void>): void {
  test(`${CASES} ${name}`, { timeout: 3_600_000 }, async () => {
    const ends = new Map<string, number>();
    const before = process.memoryUsage.rss();
    let most = before;
    for (let seed = FIRST; seed < FIRST + CASES; seed++) {
      const spent = stopwatch();
      let end = "right";
      try {
        await one(random(seed));
      } catch (error) {
        if (!(error instanceof EngineError)) throw new Error(`seed ${seed}: ${(error as Error).stack}`);
        assert.ok(
          error.code.length > 0 && error.message.length < 6000,
          `seed ${seed}: ${error.message.length} characters`,
        );
        end = error.code;
      }
      const took = spent();
      assert.ok(took < SOON, `seed ${seed}: ${took.toFixed(0)} ms`);
      ends.set(end, (ends.get(end) ?? 0) + 1);
      most = Math.max(most, process.memoryUsage.rss());
    }
    assert.ok(most - before < MEMORY, `${((most - before) / 2 ** 20).toFixed(0)} MiB`);
    const share = (ends.get("right") ?? 0) / CASES;
    assert.ok(share > right && share < 0.95, JSON.stringify([...ends]));
  });
}

all("tokenizers", 0.1, (next) => {
  const { json, config } = pick(next, TOKENIZERS);
  let [file, side] = [json, config];
  for (let i = 1 + next(3); i > 0; i--) file = changed(next, file);
  if (next(3) === 0) side = changed(next, side);
  use(new Tokenizer(file as unknown as TokenizerJson, side as TokenizerConfig));
});

const CONFIGS: readonly Json[] = [
  { eos_token_id: [1, 2], vocab_size: 100 },
  { temperature: 0.6, top_k: 20, top_p: 0.9, do_sample: true, eos_token_id: 2, repetition_penalty: 1.1 },
];

all("configurations", 0.1, async (next) => {
  const { json, config } = pick(next, TOKENIZERS);
  const side = () => changed(next, changed(next, pick(next, CONFIGS)));
  const written = JSON.stringify(side());
  const cut = next(10) === 0 ? written.slice(0, next(written.length)) : written;
  const text = await loadText(
    { "general.architecture": "llama" },
    new Uint8Array(),
    {
      weights: [],
      promised: null,
      config: null,
      side: async () => ({
        config: next(4) === 0 ? null : new TextEncoder().encode(cut),
        generationConfig: side(),
        tokenizer: next(4) === 0 ? null : json,
        tokenizerConfig: changed(next, config),
        chatTemplate: next(2) === 0 ? null : pick(next, SOURCES),
      }),
    },
    platform,
  );
  assert.ok(text.ends.every((id) => Number.isInteger(id) && id >= 0));
  assert.ok(Object.values(text.sampling).every((value) => typeof value === "number" && !Number.isNaN(value)));
  text.describe();
});

const GGUFS = ["bitnet_packed.b158.I2_S.gguf", "onebitllm_style.F16.gguf", "qwen3.Q1_0.gguf", "llama_f32.F32.gguf"].map(
  (name) => {
    const gguf = ggufFile(name);
    return { ...gguf, header: new Uint8Array(gguf.header) };
  },
);
const KEYS = [
  "model",
  "pre",
  "tokens",
  "token_type",
  "scores",
  "merges",
  "bos_token_id",
  "eos_token_id",
  "unknown_token_id",
];
KEYS.push("add_bos_token", "add_eos_token", "add_space_prefix", "eot_token_id", "padding_token_id");

all("sets of GGUF metadata", 0.1, (next) => {
  const gguf = pick(next, GGUFS);
  const scalars = new Map<string, string | number | boolean | undefined>();
  const arrays = new Map<string, GgufArray | undefined>();
  const { header } = gguf;
  const wrong = () =>
    pick(next, [0, 1, header.length, header.length - 1, next(header.length), 2 ** 32, -1, 0.5, Number.NaN]);
  for (let i = 1 + next(3); i > 0; i--) {
    const key = `tokenizer.ggml.${pick(next, KEYS)}`;
    const array = gguf.array(key);
    if (!array || next(6) === 0)
      scalars.set(key, pick(next, [...TEXTS, ...NUMBERS, true, false, undefined, "llama", "gpt2", "default"]));
    if (!array) continue;
    const part = pick(next, ["elementType", "count", "offset", "length"] as const);
    const close = array[part] + pick(next, [-8, -1, 1, 4, 8]);
    arrays.set(key, next(5) === 0 ? undefined : { ...array, [part]: next(2) === 0 ? close : wrong() });
  }
  // Bytes of the strings and their lengths, where the tables are.
  const bytes = next(2) === 0 ? header : new Uint8Array(header);
  const table = gguf.array("tokenizer.ggml.tokens") as GgufArray;
  if (bytes !== header) for (let i = next(20); i > 0; i--) bytes[table.offset + next(table.length)] = next(256);
  const made: GgufText = {
    header: bytes,
    get: (key) => (scalars.has(key) ? scalars.get(key) : gguf.get(key)),
    array: (key) => (arrays.has(key) ? arrays.get(key) : gguf.array(key)),
  };
  const { json, config, warnings } = fromGguf(made);
  const tokenizer = new Tokenizer(json, config, warnings);
  tokenizer.decode(tokenizer.encode(pick(next, INPUTS)));
});

const tokenizer = new Tokenizer(files[2]!.json, files[2]!.config);
const SOURCES: string[] = [
  ...Object.values(chatTemplates()).map((one) => one.template),
  ...fixture("jinja2").cases.map((one: { template: string }) => one.template),
];
const PARTS = [
  "{{",
  "}}",
  "{%",
  "%}",
  "{#",
  "#}",
  "-%}",
  " for x in messages ",
  " endfor ",
  " if ",
  " endif ",
  " set a = ",
  " macro m(a) ",
  " endmacro ",
  "m(",
  ")",
  "(",
];
PARTS.push(
  "messages",
  "x",
  ".content",
  "|tojson",
  "|length",
  "|upper",
  "|join(',')",
  "['a']",
  "[::-1]",
  "[1:]",
  " * 1000000 ",
  " ~ ",
  " in ",
  "range(100000)",
  "'a'",
  '"',
  "loop.index",
  "namespace(a=1)",
);
PARTS.push(
  "{% set x = 'ab' * 1000000 %}",
  "{% for i in range(100000) %}",
  "|list",
  "|sort",
  "|replace('a', 'bb')",
  ".split('')",
  "{% generation %}",
  " not ",
  "((((",
  "\n",
  "    ",
);
const CONTENTS = ["Hi", "", " x\n", "<|im_end|>", "> <", "a".repeat(2000), "<think>a</think>b", "\u28ff"];

all("templates", 0.1, (next) => {
  let source = pick(next, SOURCES);
  for (let i = 1 + next(4); i > 0; i--) {
    const [at, other] = [next(source.length + 1), pick(next, SOURCES)];
    const from = next(other.length + 1);
    const put = next(2) === 0 ? pick(next, PARTS) : other.slice(from, from + next(60));
    source = source.slice(0, at) + put + source.slice(at + (next(2) === 0 ? next(20) : 0));
    if (next(20) === 0) source = source.repeat(1 + next(50));
  }
  const messages: unknown[] = Array.from({ length: 1 + next(4) }, (_, i) =>
    next(8) === 0
      ? anything(next)
      : {
          role: pick(next, ["user", "assistant", "system", "tool"]),
          content: next(6) === 0 ? anything(next) : pick(next, CONTENTS),
          i,
        },
  );
  const tools = next(4) === 0 ? [anything(next), { name: "f", parameters: anything(next) }] : null;
  const template = templateOf(
    next(4) === 0 ? { config: { chat_template: anything(next) as string } } : { override: source },
    tokenizer,
  );
  const options = { tools, addGenerationPrompt: next(2) === 0, now: new Date(0) };
  if (!template) return;
  const { text, seams } = template.renderGuarded(messages as ChatMessage[], options, guardOf(tokenizer));
  tokenizer.encode(text.slice(0, 20_000), { addSpecial: false, seams });
});
