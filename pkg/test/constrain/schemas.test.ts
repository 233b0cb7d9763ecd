/** Texts of a model that knows nothing, kept to 200 schemas and judged by a validator of the field. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import Ajv from "ajv";
import Ajv2020 from "ajv/dist/2020.js";
import formats from "ajv-formats";
import { createGlue } from "../../dist/glue/constrain.js";
import { vocabularyOf } from "../../src/constrain/compiler.ts";
import { Tokenizer } from "../../src/text/tokenizer.ts";
import { grow, HAND_WRITTEN, random, type Schema } from "./support/schemas.ts";

const read = (path: string) => readFileSync(new URL(`../../${path}`, import.meta.url));
const demo = (name: string) => JSON.parse(read(`models/ternlight-demo/${name}`).toString());

const tokenizer = new Tokenizer(demo("tokenizer.json"), demo("tokenizer_config.json"));
const VOCAB = 4096;
const ends = tokenizer.ends.map(({ id }) => id);
const glue = createGlue();
glue.initSync({ module: new WebAssembly.Module(read("dist/constrain.wasm")) });
const { bytes, lengths, special, ends: final } = vocabularyOf(tokenizer, VOCAB, ends);
const vocabulary = new glue.Vocabulary(bytes, lengths, special, final);

/** Tokens that bring a text nearer to its end, those before others. */
const NEARER = [/^"$/, /^[\]}]$/, /^[-@.:0-9a]$/].map(
  (texts) => new Set(Array.from({ length: VOCAB }, (_, id) => id).filter((id) => texts.test(tokenizer.decode([id])))),
);

/** A text by tokens at random, each as likely as any other that may come; later those that close it are preferred. */
function speak(schema: Schema, seed: number): string {
  const constraint = vocabulary.constraint("json_schema", JSON.stringify(schema));
  const next = random(seed);
  const ids: number[] = [];
  for (;;) {
    const mask = constraint.mask();
    const may = (id: number) => ((mask[id >>> 5]! >>> (id & 31)) & 1) === 1;
    const allowed = Array.from({ length: VOCAB }, (_, id) => id).filter((id) => may(id));
    const patient = ids.length < 60;
    if (allowed.length === 0 || (ends.some(may) && (!patient || next() < 0.2))) break;
    const wishes = patient ? [] : NEARER.filter(() => next() < 0.7);
    const nearer = wishes.map((wish) => allowed.filter((id) => wish.has(id))).find((some) => some.length > 0);
    const texts = nearer ?? allowed.filter((id) => !ends.includes(id));
    const id = texts[Math.floor(next() * texts.length)]!;
    constraint.accept(id);
    ids.push(id);
    assert.ok(ids.length < 1000, `${JSON.stringify(schema)} does not end: ${tokenizer.decode(ids)}`);
    if (constraint.done()) break;
  }
  constraint.free();
  return tokenizer.decode(ids);
}

/** Wrong where a text is no JSON, or not what the schema says. */
function judge(schema: Schema, text: string): string | null {
  const draft7 = schema !== true && String(schema.$schema).includes("draft-07");
  const ajv = new (draft7 ? Ajv : Ajv2020)({ strict: false });
  formats(ajv);
  const validate = ajv.compile(schema);
  return validate(JSON.parse(text)) ? null : ajv.errorsText(validate.errors);
}

const grown = Array.from({ length: 200 - HAND_WRITTEN.length }, (_, seed) => grow(seed));

test("every text that ends is valid", () => {
  const schemas = [...HAND_WRITTEN, ...grown];
  assert.equal(schemas.length, 200);
  for (const [number, schema] of schemas.entries()) {
    for (const seed of [number, number + 1000]) {
      const text = speak(schema, seed);
      const wrong = judge(schema, text);
      assert.equal(wrong, null, `${JSON.stringify(schema)}: ${wrong}\n${text}`);
    }
  }
});

test("the judge tells wrong from right", () => {
  assert.match(judge({ type: "integer", minimum: 3 }, "2")!, />= 3/);
  assert.match(judge({ type: "string", format: "date" }, '"2023-02-29"')!, /date/);
  assert.throws(() => judge(true, "{"), SyntaxError);
});
