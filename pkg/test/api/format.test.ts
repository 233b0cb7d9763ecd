/** `responseFormat`: answers of the demo model that keep to it. */

import assert from "node:assert/strict";
import { test } from "node:test";
import Ajv2020 from "ajv/dist/2020.js";
import type { Model, ResponseFormat } from "ternlight";
import { demo, failure, GREEDY, ONCE, reason } from "./support/model.ts";

const OWN = { type: "object", additionalProperties: false };

const ask = (model: Model, format: ResponseFormat, options = {}) =>
  model.generate("Once upon a time", { responseFormat: format, seed: 3, maxTokens: 400, ...options }).finished;

test("JSON schemas", async (context) => {
  const model = await demo(context);
  const person = {
    type: "object",
    properties: { name: { type: "string", maxLength: 20 }, age: { type: "integer", minimum: 0, maximum: 150 } },
    required: ["name", "age"],
    additionalProperties: false,
  };
  const schemas: object[] = [
    person,
    { type: "array", items: { enum: ["fox", "bear", "king"] }, minItems: 2, maxItems: 4 },
    { enum: ["once", 1, null, { upon: [true] }] },
    { type: "string", format: "date-time", maxLength: 24 },
    { type: "string", pattern: "^[A-Z][a-z]{2,8}( [a-z]{1,6}){2}\\.$" },
    { type: "number", minimum: -1, maximum: 1, multipleOf: 0.125 },
    {
      anyOf: [
        { type: "integer", minimum: 100, maximum: 999 },
        { type: "array", maxItems: 1, items: person },
      ],
    },
    { type: "array", prefixItems: [{ const: "größe" }, { type: "boolean" }], items: false, minItems: 2 },
    { type: "object", additionalProperties: { type: "null" }, maxProperties: 0 },
    {
      $ref: "#/$defs/node",
      $defs: {
        node: { properties: { next: { $ref: "#/$defs/leaf" } }, required: ["next"], ...OWN },
        leaf: { properties: { value: { type: "integer", maximum: 9, minimum: 0 } }, ...OWN },
      },
    },
  ];
  const answers = await Promise.all(
    schemas.map((schema) => ask(model, { type: "json_schema", schema }, { temperature: 1.5 })),
  );
  for (const [number, { text, finishReason }] of answers.entries()) {
    const schema = schemas[number]!;
    assert.equal(finishReason, "stop", `${JSON.stringify(schema)}: ${text}`);
    const validate = new Ajv2020({ strict: false, validateFormats: false }).compile(schema);
    assert.ok(validate(JSON.parse(text)), `${JSON.stringify(schema)}: ${text}`);
  }
  const { text } = await ask(model, "json", { temperature: 0 });
  assert.match(text, /^\{/);
});

test("regular expressions and grammars, in bytes and characters", async (context) => {
  const model = await demo(context);
  for (const [format, expected] of [
    [{ type: "regex", pattern: " (yes|no)" }, /^ (yes|no)$/],
    [{ type: "regex", pattern: "" }, /^$/],
    [{ type: "regex", pattern: "[à-ÿ]{3}漢😀?" }, /^[à-ÿ]{3}漢(😀)?$/],
    [{ type: "regex", pattern: /^[a-c]{4}\/[^\D0-8]{2}$/i }, /^[a-c]{4}\/99$/i],
    [
      { type: "grammar", grammar: 'start: " " who (", " who){1,3} "."\nwho: "a fox" | "the king"' },
      /^ (a fox|the king)(, (a fox|the king)){1,3}\.$/,
    ],
  ] as [ResponseFormat, RegExp][]) {
    for (const temperature of [0, 2]) {
      const { text, finishReason } = await ask(model, format, { temperature, repetitionPenalty: 1.2 });
      assert.match(text, expected);
      assert.equal(finishReason, "stop");
    }
  }
});

test("an answer ends where nothing may follow, or where it may and the model ends it", async (context) => {
  const model = await demo(context);
  const format: ResponseFormat = { type: "regex", pattern: "[a-z ]+" };
  const cut = await ask(model, format, { ignoreEos: true, maxTokens: 9 });
  assert.deepEqual([cut.finishReason, cut.tokens.length], ["length", 9]);
  assert.match(cut.text, /^[a-z ]+$/);
  const whole = await ask(model, { type: "regex", pattern: "a{3,5}" }, { ignoreEos: true });
  assert.deepEqual([whole.text, whole.finishReason], ["aaaaa", "stop"]);
});

test("samplers, hooks, sessions and the same seed work as without", async (context) => {
  const model = await demo(context);
  const format: ResponseFormat = { type: "regex", pattern: "( [a-z]+){6}\\." };
  const [one, two] = await Promise.all([ask(model, format), ask(model, format)]);
  assert.deepEqual(one.tokens, two.tokens);
  assert.match(one.text, /^( [a-z]+){6}\.$/);
  const any = await ask(model, { type: "regex", pattern: "(?s:.*)" }, GREEDY);
  assert.deepEqual(any.tokens, (await model.generate("Once upon a time", GREEDY).finished).tokens);

  const seen: number[] = [];
  const logitsProcessor = (logits: Float32Array) => void seen.push(logits.filter((logit) => logit > -Infinity).length);
  const digits = await ask(model, { type: "regex", pattern: "[0-9]{4}" }, { logitsProcessor });
  assert.equal(seen.length, digits.tokens.length);
  assert.ok(Math.max(...seen) < 1000 && Math.min(...seen) > 0, String(seen));

  const session = model.session();
  const first = await session.generate(ONCE, { responseFormat: format, seed: 3 }).finished;
  assert.deepEqual(session.tokens, [...ONCE, ...first.tokens]);
  const { text } = await session.generate(" The", { responseFormat: format, seed: 3 }).finished;
  assert.match(text, /^( [a-z]+){6}\.$/);
});

test("a processor brings nothing back that the format forbids", async (context) => {
  const model = await demo(context);
  const format = { type: "regex", pattern: "[0-9]{4}" } as const;
  for (const temperature of [0, 9]) {
    const logitsProcessor = (logits: Float32Array) => new Float32Array(logits.length);
    const { text, finishReason } = await ask(model, format, { logitsProcessor, temperature, topK: 0 });
    assert.match(text, /^[0-9]{4}$/);
    assert.equal(finishReason, "stop");
  }
  // One that allows nothing else leaves nothing.
  const logitsProcessor = (logits: Float32Array) => logits.fill(-Infinity).fill(0, 443, 444);
  const { code, detail } = await failure(() => ask(model, format, { logitsProcessor }));
  assert.deepEqual([code, detail.option], ["InvalidArgument", "logitsProcessor"]);
});

test("it can be stopped or aborted at once", async (context) => {
  const model = await demo(context);
  const generation = model.generate(ONCE, { responseFormat: "json" });
  generation.stop();
  assert.deepEqual([(await generation.finished).finishReason, (await generation.finished).text], ["stopped", ""]);
  const controller = new AbortController();
  const doomed = model.generate(ONCE, { responseFormat: "json", signal: controller.signal });
  controller.abort("enough");
  assert.equal(await reason(doomed.finished), "enough");
});

test("what cannot be kept to is a typed error that names the option and the place", async (context) => {
  const model = await demo(context);
  const refused = async (format: unknown) => {
    const { code, detail } = await failure(() => ask(model, format as ResponseFormat));
    return [code, detail.option, detail.place];
  };
  const loop: Record<string, unknown> = {};
  loop.items = loop;
  assert.deepEqual(await refused({ type: "json_schema", schema: loop }), [
    "BadConstraint",
    "responseFormat.schema",
    undefined,
  ]);
  const schema = { properties: { a: { items: { not: {} } } } };
  const place = "#/properties/a/items";
  assert.deepEqual(await refused({ type: "json_schema", schema }), ["BadConstraint", "responseFormat.schema", place]);
  const pattern = ["BadConstraint", "responseFormat.pattern", "line 1, column 2"];
  assert.deepEqual(await refused({ type: "regex", pattern: "a(b" }), pattern);
  const grammar = ["BadConstraint", "responseFormat.grammar", "line 2, column 4"];
  assert.deepEqual(await refused({ type: "grammar", grammar: "start: a\na: b" }), grammar);
  for (const wrong of ["xml", {}, { type: "regex" }, { type: "json_schema", schema: false }, null, 3]) {
    assert.deepEqual(await refused(wrong), ["InvalidArgument", "responseFormat", undefined]);
  }
  assert.equal((await ask(model, { type: "regex", pattern: "abc" })).text, "abc");
});
