/** Schemas to keep to: written by hand for each keyword and their meetings, and grown from a seed. */

export type Schema = Record<string, unknown> | true;

const object = (properties: Record<string, Schema>, more: Record<string, unknown> = {}): Schema => ({
  type: "object",
  properties,
  ...more,
});
const closed = { additionalProperties: false };

export const HAND_WRITTEN: readonly Schema[] = [
  true,
  {},
  { type: "null" },
  { type: "boolean" },
  { type: "integer" },
  { type: "number" },
  { type: "string" },
  { type: "array" },
  { type: "object" },
  { type: ["string", "null"] },
  { type: ["integer", "boolean", "array"] },
  { const: "yes" },
  { const: { a: [1, 2.5, "x", null, true], "b c": {} } },
  { enum: ["red", "green", "blue"] },
  { enum: [1, "1", null, true, [1], { a: 1 }] },
  { enum: ["a", "ab", "abc", "b"] },
  { enum: ['quote " backslash \\ line \n tab \t é 漢 😀'] },
  // Numbers.
  { type: "integer", minimum: 0, maximum: 9 },
  { type: "integer", minimum: -5, maximum: 5 },
  { type: "integer", exclusiveMinimum: 0, exclusiveMaximum: 2 },
  { type: "integer", minimum: 1234, maximum: 98765 },
  { type: "integer", minimum: -1000 },
  { type: "integer", maximum: -17 },
  { type: "integer", multipleOf: 3 },
  { type: "integer", multipleOf: 25, minimum: 100, maximum: 10_000 },
  { type: "number", minimum: 0, maximum: 1 },
  { type: "number", exclusiveMinimum: 0, exclusiveMaximum: 1 },
  { type: "number", minimum: -1.5, maximum: 2.25 },
  { type: "number", minimum: 0.001 },
  { type: "number", maximum: -99.5 },
  { type: "number", multipleOf: 0.5, minimum: 0, maximum: 100 },
  { type: "integer", minimum: 3, maximum: 3 },
  // Strings.
  { type: "string", minLength: 3 },
  { type: "string", maxLength: 4 },
  { type: "string", minLength: 2, maxLength: 2 },
  { type: "string", maxLength: 0 },
  { type: "string", pattern: "^[a-z]{2,4}$" },
  { type: "string", pattern: "[0-9]" },
  { type: "string", pattern: "^a" },
  { type: "string", pattern: "z$", maxLength: 5 },
  { type: "string", pattern: "^\\d{3}-\\d{4}$" },
  { type: "string", pattern: "^(\\w+)@(\\w+)\\.(com|org)$", maxLength: 30 },
  { type: "string", pattern: '^["\\\\/]+$', maxLength: 6 },
  { type: "string", pattern: "^[^a-zA-Z]*$", maxLength: 10 },
  { type: "string", pattern: "^(foo|bar){1,3}$" },
  { type: "string", pattern: "^.{3}$" },
  { type: "string", pattern: "^\\S+ \\S+$", maxLength: 12 },
  { type: "string", pattern: "^[à-ÿ]{2}$" },
  { type: "string", format: "date" },
  { type: "string", format: "time" },
  { type: "string", format: "date-time" },
  { type: "string", format: "email" },
  { type: "string", format: "ipv4" },
  { type: "string", format: "uuid" },
  { type: "string", format: "hostname", maxLength: 40 },
  // Arrays.
  { type: "array", items: { type: "integer", minimum: 0, maximum: 99 } },
  { type: "array", items: { type: "boolean" }, minItems: 2, maxItems: 5 },
  { type: "array", items: { type: "string", maxLength: 3 }, maxItems: 0 },
  { type: "array", prefixItems: [{ type: "integer" }, { type: "string", maxLength: 5 }], items: false },
  { type: "array", prefixItems: [{ const: 1 }, { const: 2 }], items: { const: 3 }, minItems: 3, maxItems: 6 },
  { type: "array", items: { type: "array", items: { type: "null" }, maxItems: 2 }, maxItems: 3 },
  { type: "array", items: { enum: [1, 2, 3] }, minItems: 4 },
  // Objects.
  object({}, closed),
  object({ a: { type: "integer" } }, { required: ["a"], ...closed }),
  object({ a: { type: "integer" }, b: { type: "boolean" }, c: { type: "null" } }, closed),
  object({ a: { type: "integer" }, b: { type: "boolean" } }, { required: ["b"] }),
  object({ a: { type: "integer" } }, { additionalProperties: { type: "string", maxLength: 4 } }),
  object({ "a/b": { const: 1 }, 'c"d': { const: 2 }, "e\\f": { const: 3 }, "": { const: 4 } }, closed),
  object({ é: { const: 1 }, 漢: { const: 2 }, "😀": { const: 3 } }, { required: ["漢"], ...closed }),
  object({ a: { type: "integer", maximum: 9 } }, { required: ["a", "z"], additionalProperties: { type: "boolean" } }),
  { type: "object", patternProperties: { "^x_": { type: "integer", minimum: 0 } }, ...closed },
  object(
    { x_one: { minimum: 5 } },
    { patternProperties: { "^x_": { type: "integer" } }, additionalProperties: { type: "null" } },
  ),
  {
    type: "object",
    required: ["a"],
    additionalProperties: { type: "integer", maximum: 5 },
    minProperties: 2,
    maxProperties: 2,
  },
  { type: "object", additionalProperties: { type: "boolean" }, minProperties: 1 },
  object(
    {
      a: {
        type: "object",
        properties: { b: { type: "object", properties: { c: { const: 1 } }, required: ["c"] } },
        required: ["b"],
      },
    },
    { required: ["a"], ...closed },
  ),
  { required: ["a"] },
  { properties: { a: { type: "integer" } } },
  // Together.
  { anyOf: [{ type: "integer" }, { type: "string", maxLength: 3 }] },
  {
    anyOf: [
      object({ k: { const: "a" }, n: { type: "integer" } }, { required: ["k", "n"], ...closed }),
      object({ k: { const: "b" }, s: { type: "string" } }, { required: ["k", "s"], ...closed }),
    ],
  },
  { oneOf: [{ type: "integer" }, { type: "string" }] },
  { oneOf: [object({ k: { const: "a" } }, { required: ["k"] }), object({ k: { const: "b" } }, { required: ["k"] })] },
  { allOf: [{ type: "integer" }, { minimum: 3 }, { maximum: 8 }] },
  {
    allOf: [
      object({ a: { type: "integer" } }, { required: ["a"] }),
      object({ b: { type: "boolean" } }, { required: ["b"] }),
    ],
  },
  { allOf: [{ type: "string", minLength: 2 }, { maxLength: 4 }, { pattern: "^[ab]+$" }] },
  { allOf: [{ anyOf: [{ type: "integer" }, { type: "null" }] }, { anyOf: [{ type: "null" }, { type: "boolean" }] }] },
  {
    type: "integer",
    anyOf: [
      { minimum: 10, maximum: 12 },
      { minimum: 90, maximum: 99 },
    ],
  },
  { type: "number", enum: [1, 2, "three"] },
  // By reference.
  { $ref: "#/$defs/name", $defs: { name: { type: "string", maxLength: 5 } } },
  object(
    { a: { $ref: "#/$defs/n" }, b: { $ref: "#/$defs/n" } },
    { required: ["a", "b"], $defs: { n: { type: "integer", minimum: 0, maximum: 3 } }, ...closed },
  ),
  {
    $ref: "#/definitions/tree",
    definitions: {
      tree: object(
        {
          value: { type: "integer", maximum: 9 },
          children: { type: "array", items: { $ref: "#/definitions/tree" }, maxItems: 2 },
        },
        { required: ["value"], ...closed },
      ),
    },
  },
  object({ next: { anyOf: [{ $ref: "#" }, { type: "null" }] } }, { required: ["next"], ...closed }),
  {
    $ref: "#/$defs/a",
    $defs: {
      a: { anyOf: [{ $ref: "#/$defs/b" }, { const: 0 }] },
      b: { type: "array", items: { $ref: "#/$defs/a" }, maxItems: 2 },
    },
  },
  { $ref: "#/$defs/n", maximum: 4, $defs: { n: { type: "integer", minimum: 2 } } },
  // As programs ask for them.
  object(
    {
      name: { type: "string" },
      age: { type: "integer", minimum: 0, maximum: 150 },
      email: { type: "string", format: "email" },
      tags: { type: "array", items: { type: "string" }, maxItems: 3 },
    },
    { required: ["name", "age"], ...closed },
  ),
  object(
    {
      answer: { type: "string", enum: ["yes", "no", "unsure"] },
      reason: { type: "string", maxLength: 200 },
      confidence: { type: "number", minimum: 0, maximum: 1 },
    },
    { required: ["answer", "reason", "confidence"], ...closed },
  ),
  object(
    {
      steps: {
        type: "array",
        minItems: 1,
        maxItems: 4,
        items: object(
          { explanation: { type: "string" }, output: { type: "string" } },
          { required: ["explanation", "output"], ...closed },
        ),
      },
      final: { type: "string" },
    },
    { required: ["steps", "final"], ...closed },
  ),
  object(
    {
      location: object(
        { lat: { type: "number", minimum: -90, maximum: 90 }, lon: { type: "number", minimum: -180, maximum: 180 } },
        { required: ["lat", "lon"], ...closed },
      ),
      unit: { enum: ["celsius", "fahrenheit"] },
    },
    { required: ["location"], ...closed },
  ),
  {
    $schema: "http://json-schema.org/draft-07/schema#",
    title: "Order",
    description: "of a shop",
    ...(object(
      {
        id: { type: "string", pattern: "^[A-Z]{2}\\d{4}$" },
        paid: { type: "boolean", default: false },
        items: {
          type: "array",
          items: object(
            {
              sku: { type: "string", minLength: 1, maxLength: 8 },
              quantity: { type: "integer", minimum: 1, maximum: 99 },
              price: { type: "number", minimum: 0, multipleOf: 0.01 },
            },
            { required: ["sku", "quantity"] },
          ),
          minItems: 1,
          maxItems: 3,
        },
      },
      { required: ["id", "items"] },
    ) as object),
  },
  {
    $schema: "http://json-schema.org/draft-07/schema#",
    type: "array",
    items: [{ type: "integer" }, { type: "boolean" }],
    additionalItems: false,
  },
];

/** Numbers from 0 to 1, the same for the same seed (mulberry32). */
export function random(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

const NAMES = ["id", "name", "größe", "a b", "x-y", "$cost", 'q"', "n/a", "Δ", "list", "type", "items"];
const PATTERNS = [
  "^[a-f0-9]+$",
  "^(on|off)$",
  "^[A-Z][a-z]*$",
  "^\\D{0,3}\\d",
  "^\\w{1,6}$",
  '^[^"]{2,5}$',
  "^.{0,4}-",
  "^$|^x+$",
];

/** A schema that means something, grown from a seed. */
export function grow(seed: number): Schema {
  const next = random(seed);
  const below = (count: number) => Math.floor(next() * count);
  const pick = <T>(list: readonly T[]): T => list[below(list.length)]!;
  const maybe = (chance: number) => next() < chance;
  const some = <T>(list: readonly T[], count: number): T[] => {
    const rest = [...list];
    return Array.from({ length: Math.min(count, rest.length) }, () => rest.splice(below(rest.length), 1)[0]!);
  };

  const numbers = (): Schema => {
    const type = pick(["integer", "number"]);
    const step = type === "integer" ? 1 : pick([1, 0.5, 0.01, 0.125]);
    const low = (below(400) - 200) * step;
    const schema: Record<string, unknown> = { type };
    if (maybe(0.6)) schema[pick(["minimum", "exclusiveMinimum"])] = low;
    if (maybe(0.6)) schema[pick(["maximum", "exclusiveMaximum"])] = low + (below(1000) + 3) * step;
    if (type === "integer" && maybe(0.2)) schema.multipleOf = pick([2, 3, 7, 10]);
    return schema;
  };
  const strings = (): Schema => {
    const schema: Record<string, unknown> = { type: "string" };
    if (maybe(0.3)) schema.pattern = pick(PATTERNS);
    else if (maybe(0.2)) schema.format = pick(["date", "date-time", "time", "email", "uuid", "ipv4"]);
    else {
      if (maybe(0.5)) schema.minLength = below(4);
      if (maybe(0.7)) schema.maxLength = 4 + below(20);
    }
    return schema;
  };
  const values = () => pick<unknown>(["a", "b c", "ü", 0, -1, 1.5, true, false, null, [], ["x", 1], { k: "v" }]);

  const make = (depth: number): Schema => {
    const kind = depth === 0 ? below(6) : below(12);
    switch (kind) {
      case 0:
        return numbers();
      case 1:
        return strings();
      case 2:
        return { type: pick(["boolean", "null"]) };
      case 3:
        return { enum: Array.from({ length: 1 + below(4) }, values) };
      case 4:
        return { const: values() };
      case 5:
        return { type: some(["string", "integer", "boolean", "null"], 2), maxLength: 6, minimum: -3 };
      case 6:
        return { anyOf: Array.from({ length: 2 + below(2) }, () => make(depth - 1)) };
      case 7: {
        const prefixItems = Array.from({ length: 1 + below(2) }, () => make(depth - 1));
        return {
          type: "array",
          prefixItems,
          minItems: prefixItems.length,
          items: maybe(0.5) ? false : make(depth - 1),
        };
      }
      case 8:
        return { type: "array", items: make(depth - 1), minItems: below(3), maxItems: 2 + below(3) };
      default: {
        const names = some(NAMES, 1 + below(4));
        const schema: Record<string, unknown> = {
          type: "object",
          properties: Object.fromEntries(names.map((name) => [name, make(depth - 1)])),
          required: names.filter(() => maybe(0.6)),
        };
        if (maybe(0.7)) schema.additionalProperties = maybe(0.7) ? false : make(0);
        return schema;
      }
    }
  };
  return make(3);
}
