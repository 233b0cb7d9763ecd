/** Texts that the library takes and refuses for a pattern, judged by JavaScript's own `RegExp`. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { createGlue } from "../../dist/glue/constrain.js";
import { random } from "./support/schemas.ts";

const glue = createGlue();
const wasm = readFileSync(new URL("../../dist/constrain.wasm", import.meta.url));
glue.initSync({ module: new WebAssembly.Module(wasm) });
/** A token for each byte, and one that ends. */
const END = 256;
const bytes = Uint8Array.from({ length: 257 }, (_, id) => id % 256);
const vocabulary = new glue.Vocabulary(bytes, new Uint32Array(257).fill(1), Uint32Array.of(END), Uint32Array.of(END));

/** Where the two languages differ, and what surrounds it. */
const CHARACTERS = [
  ..."ab cdkKsS_B09-[]{}^$&~|/\\\n\r\t\v\b\0\x01\x85\xa0éÉßµμ٣ǆſK漢\u2028\u3000\ufeff\ud7ff\ue000😀𐐨𐐀",
];
const TEXTS = ["", ...CHARACTERS, ...CHARACTERS.flatMap((a) => CHARACTERS.map((b) => a + b))];

const PATTERNS = String.raw`
  \d+ \D{2} \w+ \W+ \s+ \S* [\d-] [^\D0-8]+ [^\W_]+ [\s\S] [^\s\S]|a . .. .+ a.b .? .{2,} [^] [^]* [] a|[]
  a{,2} a{2 a{ {} } ] ]] ^a$ ^a|b$ (?:^a|b)c? (a|b)+ (?<name>a)b? a*? a+?b?? a{1,2}? (?:)a (|a)b
  [[] [[-] [a&&b] [a-c&&b] [!--b] [a~~b] [-a] [a-] [^-a] [\w-b] [a-\d] [\]\\^] [^^] [\b] \0 [\0-\x1f] \cA [\cA\cJ]
  \/ \- \[\] \$\^ \x41|\x61 \u0061 \ud83d\ude00 \t|\n|\v|\r \_ [\_] é+ [à-ÿ] [Α-ω]+ (?:a|[^b])k \ud7ff|\ue000
`.match(/\S+/g)!;
const WITHOUT_U = [String.raw`\q`, String.raw`[\q\B]`, String.raw`\u{2}`, String.raw`\p{1}|\x6|\u6`, "a{,2}x?"];
const WITH_U = String.raw`\u{1F600} [\u{61}-c😀] 😀? [^😀]+ \p{Lu}+ \P{L} [\p{Nd}_] [^\p{L}\d]{2} 𐐨`.split(" ");

/** Whether a text keeps to a pattern or a schema as a whole. */
function takes(kind: string, source: string, text: string): boolean {
  let constraint: ReturnType<typeof vocabulary.constraint> | undefined;
  try {
    constraint = vocabulary.constraint(kind, source);
    for (const byte of Buffer.from(text)) constraint.accept(byte);
    return constraint.complete();
  } catch (refusal) {
    if (typeof refusal !== "string") throw refusal;
    return false;
  } finally {
    constraint?.free();
  }
}

/** What the flags allow as JavaScript has it; null where that is no pattern. */
function compiled(source: string, flags: string): RegExp | null {
  try {
    return new RegExp(source, flags);
  } catch {
    return null;
  }
}

/** A format is compiled anew for each text: a few of them, which each pattern and flag has of its own. */
const sample = (seed: number) => {
  const next = random(seed);
  return TEXTS.filter(({ length }) => next() < (length < 2 ? 0.12 : 0.0015));
};

test("a RegExp takes what it takes in JavaScript, and nothing else", () => {
  let [judged, narrower] = [0, 0];
  for (const [number, source] of [...PATTERNS, ...WITHOUT_U, ...WITH_U].entries()) {
    for (const [variant, flags] of ["", "i", "u", source.includes(".") ? "ms" : "iu"].entries()) {
      const own = compiled(source, flags);
      const whole = own && new RegExp(`^(?:${source})$`, flags.replace("m", ""));
      if (!own || !whole) continue;
      try {
        vocabulary.constraint("regexp", String(own)).free();
      } catch (refusal) {
        assert.match(String(refusal), /only .*with the flag u|no token leads on/, String(own));
        continue;
      }
      for (const text of sample(number * 4 + variant)) {
        const found: boolean = takes("regexp", String(own), text);
        const expected: boolean = whole.test(text);
        judged++;
        // Without u a class matches half of a character: what two of them take together may be refused.
        if (!found && expected && !flags.includes("u") && /[\u{10000}-\u{10ffff}]/u.test(text)) narrower++;
        else assert.equal(found, expected, `${own} ${JSON.stringify(text)}`);
      }
    }
  }
  assert.ok(judged > 2000 && narrower < judged / 50, `${judged} texts, ${narrower} refused`);
});

test("a pattern by itself is read with the flag u, and in the older syntax where that allows none", () => {
  for (const [number, source] of [...PATTERNS, ...WITH_U].entries()) {
    const whole = compiled(`^(?:${source})$`, "u") ?? new RegExp(`^(?:${source})$`);
    if (source === "[]") continue;
    for (const text of sample(number)) {
      const older = !whole.unicode && /[\u{10000}-\u{10ffff}]/u.test(text);
      if (!older) assert.equal(takes("regex", source, text), whole.test(text), `${whole} ${JSON.stringify(text)}`);
    }
  }
});

test("a schema's pattern is one for the decoded text", () => {
  for (const [number, source] of [...PATTERNS, ...WITH_U].entries()) {
    const pattern = compiled(source, "u");
    const schema = JSON.stringify({ type: "string", pattern: source });
    if (!pattern || source === "[]") continue;
    for (const text of sample(number)) {
      // Of control characters, those are written that have a short escape.
      const json = JSON.stringify(text);
      if (json.includes("\\u0")) continue;
      assert.equal(takes("json_schema", schema, json), pattern.test(text), `${pattern} ${json}`);
    }
  }
});
