/** Files made to exhaust the host: each is refused by a typed error, in bounded time and memory. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { fromGguf } from "../../src/text/from_gguf.ts";
import { Guard } from "../../src/text/guard.ts";
import { ChatTemplate } from "../../src/text/template.ts";
import { Tokenizer } from "../../src/text/tokenizer.ts";
import type { Bpe, TokenizerJson } from "../../src/text/tokenizer_json.ts";
import type { EngineError } from "../../src/types/errors.ts";
import { guardOf } from "./support/chat.ts";
import { failure, stopwatch } from "./support/check.ts";
import { parseGguf, writeGguf } from "./support/gguf_file.ts";

/** Milliseconds that `run` takes, and the bytes of heap that it leaves. */
function cost(run: () => void): { ms: number; bytes: number } {
  const before = process.memoryUsage();
  const spent = stopwatch();
  run();
  const after = process.memoryUsage();
  return {
    ms: spent(),
    bytes: after.heapUsed + after.arrayBuffers - before.heapUsed - before.arrayBuffers,
  };
}

function scoredVocabulary(tokens: readonly string[]) {
  return parseGguf(
    writeGguf([
      { key: "tokenizer.ggml.model", value: "llama" },
      { key: "tokenizer.ggml.tokens", value: ["<unk>", "<s>", "</s>", ...tokens] },
      { key: "tokenizer.ggml.scores", value: new Float32Array(tokens.length + 3) },
    ]),
  );
}

test("a scored vocabulary whose tokens can be cut everywhere is refused while its merges are counted", () => {
  // Every cut of a token gives two other tokens: 2.1 MB of header stand for two million merges of 300 MB.
  const tokens: string[] = [];
  for (let a = 0; a <= 185; a++)
    for (let b = 0; a + b <= 185; b++) if (a + b > 0) tokens.push("a".repeat(a) + "b".repeat(b));
  const gguf = scoredVocabulary(tokens);
  assert.ok(gguf.header.length < 2_500_000);
  const { ms, bytes } = cost(() => {
    const { code, detail } = failure(() => fromGguf(gguf));
    assert.equal(code, "BadTokenizer");
    assert.equal(detail?.key, "tokenizer.ggml.tokens");
  });
  assert.ok(ms < 2000, `${ms} ms`);
  assert.ok(bytes < 32 * gguf.header.length, `${bytes} bytes for a header of ${gguf.header.length}`);
});

test("a scored vocabulary within the bounds is built", () => {
  const tokens = Array.from({ length: 300 }, (_, i) => "a".repeat(i + 1));
  const { ms, bytes } = cost(() => {
    const { json, config } = fromGguf(scoredVocabulary(tokens));
    assert.equal((json.model as Bpe).scored?.ids.length, (300 * 299) / 2);
    // All scores are equal, so neighbours merge from the left, and then those pairs.
    const ids = new Tokenizer(json, config).encode("a".repeat(4), { addSpecial: false });
    assert.deepEqual(ids, [0, 3 + 3]);
  });
  assert.ok(ms < 2000, `${ms} ms`);
  assert.ok(bytes < 256 << 20, `${bytes} bytes`);
});

test("a template is charged for the length of what it reads, and ends in time", () => {
  const text = "{% set x = 'ab ' * 1300000 %}";
  const list = "{% set x = range(1000000) %}";
  const dict = "{% set x = {'a': ['b' * 100000] * 1000} %}";
  const each = (work: string) => `{% for i in range(100000) %}${work}{% endfor %}`;
  const uses = [
    "x|length",
    "x == x ~ 'a'",
    "x in x",
    "x|upper|length",
    "x.lower()|length",
    "x|trim|length",
    "x.strip()|length",
  ];
  uses.push(
    "x[0]",
    "x[-1]",
    "x[1:]|length",
    "x[::2]|length",
    "x.startswith('b')",
    "x.find('c')",
    "x.count('a')",
    "x|title|length",
  );
  uses.push(
    "x.split('z')|length",
    "x.rsplit('z')|length",
    "x.splitlines()|length",
    "x.replace('z', '')|length",
    "x is lower",
  );
  uses.push(
    "x|list|length",
    "x|reverse|length",
    "x|first",
    "x|last",
    "x|tojson|length",
    "(x ~ x)|length",
    "x.isalpha()",
    "x is string",
  );
  uses.push(
    "x|indent|length",
    "x|replace('z', 'y')|length",
    "x|capitalize|length",
    "x|default('a')|length",
    "x|wordcount",
    "x|int",
  );
  uses.push(
    "'z'.join(x)|length",
    "x|join('')|length",
    "x < x ~ 'a'",
    "x|string|length",
    "x|safe|length",
    "x|escape|length",
    "x|select|list|length",
  );
  uses.push(
    "x|map('string')|list|length",
    "x|sort|length",
    "x|unique|list|length",
    "x|sum",
    "x|batch(2)|list|length",
    "x|items|list|length",
  );
  const nested = [
    "x|tojson|length",
    "x|string|length",
    "x == x",
    "x|list|length",
    "x|items|list|length",
    "x|join('')|length",
  ];
  for (const make of [text, list, dict])
    for (const use of make === text ? uses : nested) {
      const template = new ChatTemplate("hostile", { default: `${make}${each(`{{ ${use} }}`)}` }, {});
      const spent = stopwatch();
      try {
        template.render([]);
        // What only looks something up may take a hundred thousand turns.
        assert.ok(make !== text || use === "x is string", use);
      } catch (error) {
        assert.equal((error as EngineError).code, "BadTemplate", use);
      }
      const ms = spent();
      assert.ok(ms < 2500, `${make} ${use}: ${ms} ms`);
    }
});

test("no single step of a template takes long, whatever it is charged", () => {
  const nested = "{% set ns = namespace(s=[1]) %}{% for a in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}";
  const once = [
    // At every place of the text half of what is looked for is there.
    "{% set a = 'a' * 1000000 %}{{ (a ~ 'b' ~ a) in (a * 4) }}",
    "{% set a = 'a' * 1000000 %}{{ (a * 4).find(a ~ 'b' ~ a) }}",
    "{% set a = 'a' * 1000000 %}{{ (a * 4).split(a ~ 'b' ~ a)|length }}",
    "{% set a = 'a' * 1000000 %}{{ (a * 4).split(sep=a ~ 'b' ~ a)|length }}",
    "{% set a = 'a' * 1000000 %}{{ (a * 4)|replace(a ~ 'b' ~ a, '')|length }}",
    // Each item with each other.
    "{{ range(1000000)|select('in', range(1000000))|list|length }}",
    "{{ range(1000000)|map(attribute='.' * 4000000)|list|length }}",
    "{% set x = [{'a': 1}] * 100000 %}{{ x|selectattr('a' ~ '.b' * 1000000)|list|length }}",
    "{% set x = [{'a': 1}] * 100000 %}{{ x|sort(attribute='a' ~ '.b' * 1000000)|length }}",
    // Much between little.
    "{{ range(1000)|list|tojson(indent=400000)|length }}",
    "{{ ([range(1000)|list] * 50)|tojson(indent=200000)|length }}",
    "{{ range(1000)|list|tojson(separators=['a' * 400000, ':'])|length }}",
    // What holds itself again and again, turned into a number or a message.
    `${nested}{{ range(ns.s)|length }}`,
    `${nested}{{ raise_exception(ns.s) }}`,
    `${nested}{{ 'a'|indent(ns.s) }}`,
    `${nested}{{ ns.s|upper|length }}`,
    `${nested}{{ ns.s|trim|length }}`,
    "{{ strftime_now('%c' * 2000000)|length }}",
    "{{ ('a b' * 1300000)|title|length }}",
    "{{ ('a b' * 1300000).title()|length }}",
    // A template's own special tokens, in a hundred thousand parts of one text.
    "{{ ('<|im_end|> ' * 100000).split(' ')|length }}",
    "{{ ('a' * 255 ~ ' ') * 16000 }}{{ (('a' * 255 ~ ' ') * 16000).split(' ')|length }}",
  ];
  const many = [
    // Printed where nobody sees it, and so not charged for what it becomes.
    "{% set x = range(400000)|list %}{% for i in range(100000) %}{% set y %}{{ x }}{% endset %}{% endfor %}",
    "{% set x = range(400000)|list %}{% for i in range(100000) %}{% set y = x|upper %}{% endfor %}",
    "{% macro m(a) %}{% endmacro %}{% set x = range(400000)|list %}{% for i in range(100000) %}{{ m(*x) }}{% endfor %}",
    `{% for i in range(100000) %}{% call(x) f() %}{% if x %}${"{{ x }}".repeat(30_000)}{% endif %}{% endcall %}{% endfor %}`,
  ];
  const guard = new Guard(["<|im_end|>", `${"a".repeat(255)}!`]);
  for (const source of [...once, ...many]) {
    const template = new ChatTemplate("hostile", { default: source }, {});
    let end = "right";
    const { ms, bytes } = cost(() => {
      try {
        template.renderGuarded([{ role: "user", content: "a" }], {}, guard);
      } catch (error) {
        end = (error as EngineError).code;
      }
    });
    assert.ok(["right", "BadTemplate"].includes(end), `${source.slice(0, 100)}: ${end}`);
    assert.ok(ms < 2500, `${source.slice(0, 100)}: ${ms} ms`);
    assert.ok(bytes < 256 << 20, `${source.slice(0, 100)}: ${bytes} bytes`);
  }
});

test("a decoder, added tokens and a Unigram vocabulary that would grow without measure end in a typed error", () => {
  const json = { model: { type: "BPE", vocab: { e: 0 }, merges: [] }, decoder: { type: "Fuse" } };
  const double = { type: "Replace", pattern: { String: "e" }, content: "ee" };
  const tokenizer = new Tokenizer(
    { ...json, decoder: { type: "Sequence", decoders: Array(28).fill(double) } } as never,
    null,
  );
  assert.equal(failure(() => tokenizer.decode([0])).detail.key, "decoder");
  const literal = { type: "Replace", pattern: { String: "e" }, content: "$&$$" };
  assert.equal(new Tokenizer({ ...json, decoder: literal } as never, null).decode([0]), "$&$$");

  const growing = { type: "Replace", pattern: { String: "x" }, content: "y".repeat(500) };
  const added_tokens = Array.from({ length: 60 }, (_, i) => ({ id: i + 1, content: `${i}${"x".repeat(250)}` }));
  const normalized = { ...json, normalizer: growing, added_tokens };
  const { ms } = cost(() =>
    assert.equal(failure(() => new Tokenizer(normalized as never, null)).detail.key, "added_tokens"),
  );
  assert.ok(ms < 2000, `${ms} ms`);

  const vocab = Array.from({ length: 5000 }, (_, i) => [String(i).padEnd(1000, "z"), -1]);
  const unigram = { ...json, model: { type: "Unigram", unk_id: 0, vocab } };
  assert.equal(failure(() => new Tokenizer(unigram as never, null)).detail.key, "model.vocab");
});

test("a Unigram vocabulary of runs of one letter ends in a typed error", () => {
  const runs = Array.from({ length: 1000 }, (_, i) => ["a".repeat(i + 1), -1]);
  const long = [
    ["a", -1],
    [`${"a".repeat(1000)}b`, -1],
  ];
  for (const vocab of [runs, long]) {
    const json = {
      model: { type: "Unigram", unk_id: 0, vocab: [["<unk>", 0], ...vocab] },
      decoder: { type: "Metaspace" },
    } as unknown as TokenizerJson;
    const tokenizer = new Tokenizer(json, null);
    assert.equal(tokenizer.encode("a".repeat(100), { addSpecial: false }).length, vocab === runs ? 1 : 100);
    const { ms } = cost(() => assert.equal(failure(() => tokenizer.encode("a".repeat(100_000))).code, "BadTokenizer"));
    assert.ok(ms < 2000, `${ms} ms`);
  }
});

const BYTES = Object.fromEntries(Array.from({ length: 94 }, (_, i) => [String.fromCharCode(33 + i), i]));
const bpe = (change: object) =>
  ({
    model: { type: "BPE", vocab: BYTES, merges: [] },
    decoder: { type: "ByteLevel" },
    ...change,
  }) as unknown as TokenizerJson;

test("a pre-tokenizer's or normalizer's pattern that backtracks ends in a typed error", () => {
  for (const pattern of ["(a+)+b", "(a|a)*b", "a+b", "(?:a?){50}a{50}b", "(.*)*x"]) {
    const split = { type: "Split", pattern: { Regex: pattern }, behavior: "Isolated", known: true };
    const replace = { type: "Replace", pattern: { Regex: pattern }, content: "" };
    for (const change of [
      { pre_tokenizer: split },
      { pre_tokenizer: { type: "Sequence", pretokenizers: [{ ...split, behavior: "Removed", invert: true }] } },
      { normalizer: replace },
      { normalizer: { type: "Sequence", normalizers: [replace] } },
    ]) {
      const tokenizer = new Tokenizer(bpe(change), null);
      const { ms } = cost(() => {
        const { code } = failure(() => tokenizer.encode(`${"a".repeat(50_000)}!`));
        assert.equal(code, "BadTokenizer");
      });
      assert.ok(ms < 2000, `${pattern}: ${ms} ms`);
    }
  }
});

test("a normalizer that makes a text grow is bounded", () => {
  const double = { type: "Replace", pattern: { String: "a" }, content: "aa" };
  const tokenizer = new Tokenizer(bpe({ normalizer: { type: "Sequence", normalizers: Array(40).fill(double) } }), null);
  const { ms, bytes } = cost(() => assert.equal(failure(() => tokenizer.encode("a")).code, "BadTokenizer"));
  assert.ok(ms < 2000 && bytes < 1 << 30, `${ms} ms, ${bytes} bytes`);
  const long = { type: "Prepend", prepend: "a".repeat(1000) };
  const many = { type: "Sequence", normalizers: Array(65).fill(long) };
  assert.equal(failure(() => new Tokenizer(bpe({ normalizer: many }), null)).code, "BadTokenizer");
});

test("steps of a normalizer are bounded one by one", () => {
  const long = { type: "Prepend", prepend: "A".repeat(8_000_000) };
  const normalizer = {
    type: "Sequence",
    normalizers: Array(32)
      .fill([long, { type: "Lowercase" }])
      .flat(),
  };
  const { ms, bytes } = cost(() =>
    assert.equal(failure(() => new Tokenizer(bpe({ normalizer }), null).encode("a")).code, "BadTokenizer"),
  );
  assert.ok(ms < 2000 && bytes < 256 << 20, `${ms} ms, ${bytes} bytes`);
});

test("patterns of many classes, and added tokens of many letters, take memory in proportion", () => {
  const regex = Array.from({ length: 250 }, (_, i) => `[\\u${(0x4000 + i).toString(16)}x]`).join("");
  const splits = Array.from({ length: 60 }, () => ({ type: "Split", pattern: { Regex: regex }, behavior: "Isolated" }));
  const pre_tokenizer = { type: "Sequence", pretokenizers: splits };
  const text = Array.from({ length: 0xd800 }, (_, i) => String.fromCharCode(i)).join("");
  let kept: Tokenizer | undefined;
  const classes = cost(() => {
    kept = new Tokenizer(bpe({ pre_tokenizer }), null);
    kept.encode(text);
  });
  assert.ok(classes.bytes < 256 << 20, `${classes.bytes} bytes`);
  const added_tokens = Array.from({ length: 2000 }, (_, i) => ({
    id: 100 + i,
    content: `${String.fromCharCode(0x4000 + i)}${"a".repeat(250)}`,
    special: true,
  }));
  const words = cost(() => {
    kept = new Tokenizer(bpe({ added_tokens }), null);
    guardOf(kept).mark("a");
  });
  assert.ok(words.bytes < 256 << 20, `${words.bytes} bytes`);
  assert.ok(kept);
});

test("added tokens with long beginnings in common are searched for in bounded work", () => {
  const added_tokens = Array.from({ length: 1000 }, (_, i) => ({ id: 100 + i, content: `${"a".repeat(250)}${i}` }));
  const tokenizer = new Tokenizer(bpe({ added_tokens }), null);
  const { ms } = cost(() => assert.equal(failure(() => tokenizer.encode("a".repeat(4_000_000))).code, "BadTokenizer"));
  assert.ok(ms < 2000, `${ms} ms`);
});

test("a pattern of an unknown kind is refused", () => {
  for (const pattern of [undefined, {}, { Nope: "a" }, { Regex: 7 }, "a"]) {
    const split = { type: "Split", pattern, behavior: "Isolated", invert: false };
    const replace = { type: "Replace", pattern, content: "" };
    for (const change of [{ pre_tokenizer: split }, { normalizer: replace }])
      assert.equal(failure(() => new Tokenizer(bpe(change), null)).code, "BadTokenizer");
  }
});
