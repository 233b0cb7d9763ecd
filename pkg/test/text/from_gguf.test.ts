import assert from "node:assert/strict";
import { test } from "node:test";
import { loadText } from "../../src/host/text.ts";
import { fromGguf } from "../../src/text/from_gguf.ts";
import type { GgufText } from "../../src/text/gguf.ts";
import { PRE_TOKENIZERS } from "../../src/text/pretokenizers.ts";
import type { GgufEntry } from "../../src/text/to_gguf.ts";
import { Tokenizer } from "../../src/text/tokenizer.ts";
import { EngineError } from "../../src/types/errors.ts";
import { platform } from "./support/chat.ts";
import { failure } from "./support/check.ts";
import { parseGguf, writeGguf } from "./support/gguf_file.ts";
import { fixture, ggufFile, goldenStrings } from "./support/golden.ts";
import { random } from "./support/random.ts";

/** The same metadata with some scalars changed, or taken away by undefined. */
function changed(gguf: GgufText, values: Record<string, string | number | boolean | undefined>): GgufText {
  return { ...gguf, get: (key) => (key in values ? values[key] : gguf.get(key)) };
}

function open(gguf: GgufText): Tokenizer {
  const { json, config, warnings } = fromGguf(gguf);
  return new Tokenizer(json, config, warnings);
}

function tiny(changes: Record<string, GgufEntry["value"] | undefined> = {}): GgufText {
  const entries: Record<string, GgufEntry["value"] | undefined> = {
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.tokens": [
      "<unk>",
      "<s>",
      "</s>",
      "a",
      "b",
      "aa",
      "ab",
      "ba",
      "\u2581",
      "<0xC3>",
      "<0xA9>",
      "<user>",
      "gone",
    ],
    "tokenizer.ggml.token_type": Int32Array.of(2, 3, 3, 1, 1, 1, 1, 1, 1, 6, 6, 4, 5),
    "tokenizer.ggml.scores": Float32Array.of(0, 0, 0, -9, -9, -2, -1, -2, -9, 0, 0, 0, 0),
    ...changes,
  };
  const present = Object.entries(entries).filter(([, value]) => value !== undefined);
  return parseGguf(writeGguf(present.map(([key, value]) => ({ key, value }) as GgufEntry)));
}

for (const { vocabulary, strings, ids } of fixture("pre_tokenizers").sets) {
  for (const [name, expected] of Object.entries<number[][]>(ids)) {
    test(`tokenizer.ggml.pre ${name} splits as llama.cpp does (${vocabulary})`, () => {
      const tokenizer = open(changed(ggufFile(vocabulary), { "tokenizer.ggml.pre": name }));
      const wrong = (strings as string[]).filter((text, i) => {
        const got = tokenizer.encode(text, { addSpecial: false });
        return JSON.stringify(got) !== JSON.stringify(expected[i]);
      });
      assert.deepEqual(wrong, []);
      assert.ok(strings.length > 30);
    });
  }
}

test("tokenizer.ggml.pre falcon_e, of Falcon-E's files, is Llama 3's", () => {
  const { vocabulary, strings } = fixture("pre_tokenizers").sets[0];
  const idsOf = (pre: string) => {
    const tokenizer = open(changed(ggufFile(vocabulary), { "tokenizer.ggml.pre": pre }));
    return (strings as string[]).map((text) => tokenizer.encode(text, { addSpecial: true }));
  };
  assert.deepEqual(idsOf("falcon_e"), idsOf("llama-bpe"));
});

test("the fixture has every pre-tokenizer we know", () => {
  const names = PRE_TOKENIZERS.map((pre) => pre.names[0]);
  assert.deepEqual(Object.keys(fixture("pre_tokenizers").sets[0].ids).sort(), names.sort());
});

test("a BitNet file without tokenizer.ggml.pre is split as Llama 3, and says so; the default would be wrong", () => {
  const file = ggufFile("bitnet_packed.b158.I2_S.gguf");
  assert.equal(file.get("tokenizer.ggml.pre"), undefined);
  const { json, config, warnings } = fromGguf(file);
  assert.match(warnings.join(), /pre is missing.*llama-bpe.*bitnet-b1\.58/);
  assert.deepEqual(new Tokenizer(json, config, warnings).warnings, warnings);

  const other = fromGguf(changed(file, { "general.architecture": "stablelm" }));
  assert.match(other.warnings.join(), /pre is missing.*default/);
  const byDefault = new Tokenizer(other.json, other.config);
  const differ = goldenStrings("tiny_llama3").filter(({ text, ids }) => {
    return JSON.stringify(byDefault.encode(text, { addSpecial: false })) !== JSON.stringify(ids);
  });
  assert.notEqual(differ.length, 0);
});

test("files older than tokenizer.ggml.pre are split as their vocabulary or architecture tells", () => {
  const idsOf = (file: GgufText, strings: readonly { text: string }[]) =>
    strings.map(({ text }) => open(file).encode(text, { addSpecial: false }));
  for (const [file, golden, name] of [
    ["llama_bitlinear.TQ1_0.gguf", "tiny_llama3", "llama-bpe"],
    ["qwen3.Q8_0.gguf", "tiny_qwen2", "qwen2"],
  ] as const) {
    const old = changed(ggufFile(file), { "tokenizer.ggml.pre": undefined });
    assert.match(fromGguf(old).warnings.join(), new RegExp(`pre is missing.*${name}`));
    const strings = goldenStrings(golden).slice(0, 60);
    assert.deepEqual(
      idsOf(old, strings),
      strings.map(({ ids }) => ids),
    );
  }
});

test("BOS and EOS: added by default as the kind has it, and as the file says", () => {
  const file = ggufFile("llama_bitlinear.TQ1_0.gguf");
  const said = (bos?: boolean, eos?: boolean, pre = "llama-bpe") => {
    const tokenizer = open(
      changed(file, {
        "tokenizer.ggml.add_bos_token": bos,
        "tokenizer.ggml.add_eos_token": eos,
        "tokenizer.ggml.pre": pre,
      }),
    );
    return [tokenizer.addsBos, tokenizer.addsEos, tokenizer.encode("a").length];
  };
  assert.deepEqual(said(), [true, false, 2]);
  assert.deepEqual(said(false), [false, false, 1]);
  assert.deepEqual(said(undefined, true), [true, true, 3]);
  assert.deepEqual(said(undefined, undefined, "gpt-2"), [false, false, 1]);
  assert.deepEqual(said(true, undefined, "gpt-2"), [true, false, 2]);
  assert.deepEqual(open(tiny()).encode(""), [1]);
});

test("SentencePiece: the best score merges first, the leftmost of equals, bytes where no token is", () => {
  const tokenizer = open(tiny({ "tokenizer.ggml.add_space_prefix": false }));
  const texts = (text: string) => tokenizer.encode(text, { addSpecial: false }).map((id) => tokenizer.tokenText(id));
  assert.deepEqual(texts("aab"), ["a", "ab"]);
  assert.deepEqual(texts("aaa"), ["aa", "a"]);
  assert.deepEqual(texts("baa"), ["ba", "a"]);
  assert.deepEqual(texts("b\u00e9"), ["b", "<0xC3>", "<0xA9>"]);
  assert.deepEqual(texts("a<user>b</s>"), ["a", "<user>", "b", "</s>"]);
  assert.equal(tokenizer.decode([12]), "", "an unused token adds nothing");
  assert.equal(tokenizer.decode([11, 9, 10], { special: false }), "<user>\u00e9");
});

test("SentencePiece: a space goes first unless the file says otherwise, and decoding drops it", () => {
  const prefixed = open(tiny());
  assert.deepEqual(prefixed.encode("a", { addSpecial: false }), [8, 3]);
  assert.equal(prefixed.decode([8, 3]), "a");
  const plain = open(tiny({ "tokenizer.ggml.add_space_prefix": false }));
  assert.deepEqual(plain.encode("a", { addSpecial: false }), [3]);
  assert.equal(plain.decode([8, 3]), " a");
});

test("without token types, the tokens that ids name are special", () => {
  const tokenizer = open(tiny({ "tokenizer.ggml.token_type": undefined }));
  assert.deepEqual(tokenizer.encode("a</s>", { addSpecial: false }), [8, 3, 2]);
  assert.equal(tokenizer.decode([3, 2], { special: false }), "a");
});

test("a token may be called like a property that every object has", () => {
  const tokens = ["<unk>", "<s>", "</s>", "__proto__", "constructor", "\u2581"];
  const names = tiny({
    "tokenizer.ggml.tokens": tokens,
    "tokenizer.ggml.token_type": Int32Array.of(2, 3, 3, 4, 4, 1),
    "tokenizer.ggml.scores": new Float32Array(6),
  });
  assert.deepEqual(open(names).encode("__proto__constructor", { addSpecial: false }), [3, 4]);
});

test("what is not known or not there is a typed error that names the key", () => {
  const tokens = "tokenizer.ggml.tokens";
  const file = ggufFile("llama_bitlinear.TQ1_0.gguf");
  const cases: [GgufText, string, RegExp][] = [
    [
      changed(file, { "tokenizer.ggml.model": "t5" }),
      "tokenizer.ggml.model",
      /"t5" is not known; known are gpt2.*llama/,
    ],
    [changed(file, { "tokenizer.ggml.model": undefined }), "tokenizer.ggml.model", /is missing/],
    [
      changed(file, { "tokenizer.ggml.pre": "tekken" }),
      "tokenizer.ggml.pre",
      /"tekken" is not known; known are llama-bpe.*default/,
    ],
    [
      changed(file, { "tokenizer.ggml.bos_token_id": 512 }),
      "tokenizer.ggml.bos_token_id",
      /512 is not an id below 512/,
    ],
    [changed(file, { "tokenizer.ggml.add_bos_token": "yes" }), "tokenizer.ggml.add_bos_token", /expected a boolean/],
    [
      changed(file, { "tokenizer.ggml.bos_token_id": undefined, "tokenizer.ggml.add_bos_token": true }),
      "tokenizer.ggml.add_bos_token",
      /bos_token_id is missing/,
    ],
    [
      { ...file, array: (key) => (key === "tokenizer.ggml.merges" ? undefined : file.array(key)) },
      "tokenizer.ggml.merges",
      /is missing/,
    ],
    [tiny({ [tokens]: undefined }), tokens, /is missing/],
    [tiny({ [tokens]: new Int32Array(3) }), tokens, /array of strings \(8\), got element type 5/],
    [tiny({ "tokenizer.ggml.scores": undefined }), "tokenizer.ggml.scores", /is missing/],
    [tiny({ "tokenizer.ggml.scores": new Float32Array(3) }), "tokenizer.ggml.scores", /3 values for 13 tokens/],
    [tiny({ "tokenizer.ggml.scores": new Float32Array(13).fill(Number.NaN) }), "tokenizer.ggml.scores", /NaN/],
    [tiny({ "tokenizer.ggml.token_type": ["1"] }), "tokenizer.ggml.token_type", /element type 8/],
    [tiny({ [tokens]: ["a", "b", "a", ...Array.from({ length: 10 }, (_, i) => `x${i}`)] }), tokens, /"a" occurs twice/],
    [tiny({ [tokens]: ["x".repeat(2000), ..."bcdefghijklm"] }), tokens, /token 0 is 2000 long/],
  ];
  const wrong: unknown[] = [];
  for (const [gguf, key, message] of cases) {
    const error = failure(() => open(gguf));
    if (error.code !== "BadTokenizer" || error.detail.key !== key || !message.test(error.message))
      wrong.push(error.toJSON());
  }
  assert.deepEqual(wrong, []);
});

test("arrays that lie about their bytes are refused, whatever they claim", () => {
  const file = tiny();
  const key = "tokenizer.ggml.tokens";
  const real = file.array(key) as NonNullable<ReturnType<GgufText["array"]>>;
  const lie = (array: Partial<typeof real>, header = file.header) => {
    const gguf = {
      ...file,
      header,
      array: (name: string) => (name === key ? { ...real, ...array } : file.array(name)),
    };
    return failure(() => fromGguf(gguf));
  };
  const damaged = (at: number, value: number) => {
    const bytes = file.header.slice();
    bytes[at] = value;
    return bytes;
  };
  const cases = [
    lie({ count: real.count + 1 }),
    lie({ count: 2 ** 40 }),
    lie({ length: real.length - 1 }),
    lie({ offset: file.header.length - 4 }),
    lie({}, damaged(real.offset, 0xff)),
    lie({}, damaged(real.offset + 7, 0xff)),
    lie({}, damaged(real.offset + 8, 0xff)),
    lie({}, damaged(real.offset + 8, 0x80)),
    lie({}, damaged(real.offset + 12, 0xe2)),
  ];
  for (const error of cases) assert.deepEqual([error.code, error.detail.key], ["BadTokenizer", key]);
});

test("damaged arrays give a tokenizer or a typed error, nothing else", () => {
  const file = ggufFile("onebitllm_style.F16.gguf");
  const below = random(11);
  const keys = ["tokens", "scores", "token_type"].map((key) => `tokenizer.ggml.${key}`);
  let refused = 0;
  for (let i = 0; i < 1500; i++) {
    const header = Uint8Array.from(file.header);
    const { offset, length } = file.array(keys[below(keys.length)] as string) as { offset: number; length: number };
    for (let n = 1 + below(4); n > 0; n--) header[offset + below(length)] = below(256);
    try {
      const tokenizer = open({ ...file, header });
      tokenizer.decode(tokenizer.encode("Hello \u{1f600}"));
    } catch (error) {
      assert.ok(error instanceof EngineError && error.code === "BadTokenizer", String(error));
      refused++;
    }
  }
  assert.ok(refused > 100 && refused < 1400, `${refused} refused`);
});

test("ids of little use that lie outside of the vocabulary are ignored with a warning", () => {
  const file = changed(ggufFile("llama_bitlinear.TQ1_0.gguf"), { "tokenizer.ggml.padding_token_id": 4294967295 });
  assert.match(fromGguf(file).warnings.join(), /padding_token_id: 4294967295/);
});

test("keys of a tokenizer that are lists instead of values, or values instead of lists, are refused", async () => {
  const read = (metadata: Record<string, unknown>) =>
    loadText({ "tokenizer.ggml.model": "gpt2", ...metadata }, new Uint8Array(), {} as never, {
      ...platform,
      chats: () => Promise.reject(new Error("none here")),
    });
  const list = { elementType: 5, count: 1, offset: 0, length: 4 };
  await assert.rejects(read({ "tokenizer.ggml.model": list }), /^EngineError: tokenizer.ggml.model: expected a single/);
  await assert.rejects(read({ "tokenizer.ggml.tokens": 5 }), /^EngineError: tokenizer.ggml.tokens: expected a list/);
  // Others have defaults; this one is looked at first.
  const others = { "tokenizer.chat_template": "{{ messages }}", "general.architecture": list };
  await assert.rejects(read(others), /tokenizer.ggml.tokens is missing/);
});
