/** Patterns match as JavaScript's own engine does, and end where that one would not. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Pattern } from "../../src/text/pattern.ts";
import { GPT2, PRE_TOKENIZERS } from "../../src/text/pretokenizers.ts";
import { stopwatch } from "./support/check.ts";
import { random } from "./support/random.ts";

const WORDS = "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+";
const PATTERNS = [
  GPT2,
  ...PRE_TOKENIZERS.flatMap((one) => one.splits).map((one) => one.replaceAll(/\(\?i:([^)]*)\)/g, "(?:$1)")),
  `${WORDS}(?:'s|'t)?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+`,
  "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*",
  "(a|ab)(c|bcd)*",
  "(?:a?){3}b",
  "a{2}|a{1,}b|a{0,1}?c",
  "(?<=a)b|(?<!b)a",
  "(?<name>x)+?y",
  "^a|b$|.",
  "[^a-c]+?b",
  "(?:(?<![\\s\\S])|(?<=\\n))a",
  "\\u{1F600}+|\\x61\\u0062|[\\u{1F600}-\\u{1F64F}a]{2}",
  "(a*)*b",
  "(?:)",
  "a|",
  "(?=a)|b",
];

test("every match is what JavaScript's engine finds", () => {
  const next = random(1);
  const letters = [..."aaabbc d\n\r.1é漢😀😃'sT-[]"];
  for (const source of PATTERNS) {
    const [own, native] = [new Pattern(source), new RegExp(source, "gu")];
    for (let round = 0; round < 300; round++) {
      const text = Array.from({ length: next(14) }, () => letters[next(letters.length)]).join("");
      const found = (all: Iterable<{ 0: string; index: number }>) => Array.from(all, (one) => [one[0], one.index]);
      assert.deepEqual(found(own.matches(text)), found(text.matchAll(native) as never), `${source}: ${text}`);
      assert.deepEqual(text.match(own as never), text.match(native), `${source}: ${text}`);
      assert.equal(text.replaceAll(own as never, "_"), text.replaceAll(native, "_"), `${source}: ${text}`);
    }
  }
});

test("what backtracks without end is given up", () => {
  for (const [source, unit] of [
    ["(a+)+b", "a"],
    ["(a|a)*b", "a"],
    ["(a*)*b", "a"],
    ["a+b", "a"],
    ["a*a*a*a*b", "a"],
    ["(?:a?){30}a{30}b", "a"],
    ["\\s+\\n", " "],
    ["(?=(a+)+b)", "a"],
    ["(?<!a{1,30}b)c|(a|aa)+$", "a"],
    ["(.*)(.*)(.*)x", "y"],
  ] as const) {
    const pattern = new Pattern(source);
    for (const length of [40, 100_000]) {
      const spent = stopwatch();
      try {
        [...pattern.matches(`${unit.repeat(length)}!`)];
        assert.ok(length === 40, `${source} of ${length}`);
      } catch (error) {
        assert.match((error as Error).message, /too many ways|call stack/, source);
      }
      const ms = spent();
      assert.ok(ms < 2000, `${source} of ${length}: ${ms} ms`);
    }
  }
});

test("patterns of published tokenizers stay far below the bound", () => {
  const text =
    "The quick brown FOX, größer als 漢字 123456! ".repeat(3000) +
    "A".repeat(20_000) +
    " ".repeat(20_000) +
    "\n".repeat(20_000);
  for (const source of PATTERNS.slice(0, PRE_TOKENIZERS.length + 3)) {
    assert.equal([...new Pattern(source).matches(text)].length, [...text.matchAll(new RegExp(source, "gu"))].length);
  }
});

test("what is no pattern, or not supported, is an error", () => {
  for (const source of [
    "(",
    "a)",
    "(?<=a*)b",
    "(a)\\1",
    "\\bx",
    "[a",
    "(?x)",
    "a{2000}",
    "(".repeat(200) + ")".repeat(200),
    "*",
    "\\p{Nope}",
  ])
    assert.throws(() => new Pattern(source), Error, source);
});
