/**
 * Checks requests by the JSON schemas that the server's OpenAPI document shows: what is said and what is checked cannot differ. Each
 * fault names its place as OpenAI's errors do: `messages[0].content`.
 */

import { show } from "../options/show.ts";

export type TypeName = "string" | "number" | "integer" | "boolean" | "object" | "array" | "null";

/** What the server does with a field: it does what the field asks for, takes it without effect, or refuses the request. */
export type Treatment = "taken" | "ignored" | "refused";

/** The part of JSON Schema that is used here. */
export interface Schema {
  readonly type?: TypeName | readonly TypeName[];
  readonly enum?: readonly (string | number | boolean | null)[];
  readonly minimum?: number;
  readonly maximum?: number;
  readonly maxLength?: number;
  readonly minItems?: number;
  readonly maxItems?: number;
  readonly maxProperties?: number;
  readonly items?: Schema;
  /** The first items, each with a schema of its own. */
  readonly prefixItems?: readonly Schema[];
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
  readonly additionalProperties?: Schema | boolean;
  readonly propertyNames?: { readonly pattern: string };
  readonly anyOf?: readonly Schema[];
  /** The property whose value tells which alternative it is. */
  readonly discriminator?: { readonly propertyName: string };
  readonly default?: unknown;
  readonly description?: string;
  /** `taken` where nothing is said. */
  readonly "x-treatment"?: Treatment;
}

export interface Fault {
  /** The place of what is wrong; empty for the request itself. */
  param: string;
  message: string;
  /** What it should be, where it is of another kind altogether. */
  expected?: string;
}

const typeOf = (value: unknown): TypeName => {
  if (value === null) return "null";
  if (Array.isArray(value)) return "array";
  return typeof value as TypeName;
};

function isOf(value: unknown, type: TypeName): boolean {
  if (type === "integer") return Number.isInteger(value);
  return typeOf(value) === type && (type !== "number" || Number.isFinite(value));
}

/** The first thing that is wrong with a value; null where nothing is. */
export function check(schema: Schema, value: unknown, at = ""): Fault | null {
  if (schema.anyOf) return checkAny(schema.anyOf, schema.discriminator?.propertyName, value, at);
  const types = schema.type === undefined ? null : [schema.type].flat();
  if (types && !types.some((type) => isOf(value, type))) return wrong(schema, value, at);
  if (schema.enum && value !== null && !schema.enum.includes(value as string)) return wrong(schema, value, at);
  if (typeof value === "number") return within(schema, value) ? null : wrong(schema, value, at, false);
  if (typeof value === "string")
    return value.length <= (schema.maxLength ?? Infinity) ? null : wrong(schema, value, at);
  if (Array.isArray(value)) return checkItems(schema, value, at);
  return typeof value === "object" && value !== null ? checkFields(schema, value as Record<string, unknown>, at) : null;
}

const within = ({ minimum = -Infinity, maximum = Infinity }: Schema, value: number) =>
  value >= minimum && value <= maximum;

function checkItems(schema: Schema, value: readonly unknown[], at: string): Fault | null {
  const { items, prefixItems = [], minItems = 0, maxItems = Infinity } = schema;
  if (value.length < minItems || value.length > maxItems) {
    const expected = value.length < minItems ? `at least ${minItems}` : `at most ${maxItems}`;
    return {
      param: at,
      message: `${at} must have ${expected} ${expected.endsWith(" 1") ? "item" : "items"}, not ${value.length}`,
    };
  }
  for (const [i, item] of value.entries()) {
    const own = prefixItems[i] ?? items;
    const fault = own ? check(own, item, `${at}[${i}]`) : null;
    if (fault) return fault;
  }
  return null;
}

function checkFields(schema: Schema, value: Record<string, unknown>, at: string): Fault | null {
  const {
    properties = {},
    required = [],
    additionalProperties = true,
    propertyNames,
    maxProperties = Infinity,
  } = schema;
  const place = (name: string) => (at === "" ? name : `${at}.${name}`);
  for (const name of required) {
    if (value[name] === undefined) return { param: place(name), message: `${place(name)} is missing` };
  }
  const count = Object.keys(value).length;
  if (count > maxProperties)
    return { param: at, message: `${at} must have at most ${maxProperties} keys, not ${count}` };
  const pattern = propertyNames && new RegExp(propertyNames.pattern);
  for (const [name, field] of Object.entries(value)) {
    const known = Object.hasOwn(properties, name) ? properties[name]! : additionalProperties;
    if (pattern && !pattern.test(name)) {
      return {
        param: at,
        message: `${at} has the key ${show(name)}, which is not of the form ${propertyNames.pattern}`,
      };
    }
    if (known === false) return { param: place(name), message: `${place(name)} is not known` };
    const fault = known === true ? null : check(known, field, place(name));
    if (fault) return fault;
  }
  return null;
}

/** Of several faults, that of the alternative whose own type is right counts. */
function checkAny(schemas: readonly Schema[], tell: string | undefined, value: unknown, at: string): Fault | null {
  if (tell && typeOf(value) === "object") return checkTold(schemas, tell, value as Record<string, unknown>, at);
  const faults: Fault[] = [];
  for (const schema of schemas) {
    const fault = check(schema, value, at);
    if (!fault) return null;
    faults.push(fault);
  }
  const inner = faults.filter(({ param }) => param !== at).sort((a, b) => b.param.length - a.param.length);
  const told = inner.find(({ expected }) => expected === undefined);
  if (told) return told;
  const fitting = schemas.findIndex(({ type }) => type !== undefined && [type].flat().some((one) => isOf(value, one)));
  return inner[0] ?? faults[fitting] ?? { param: at, message: `${at} must be ${named(schemas)}, not ${show(value)}` };
}

function checkTold(schemas: readonly Schema[], tell: string, value: Record<string, unknown>, at: string): Fault | null {
  const own = value[tell] as string;
  const values = schemas.flatMap(({ properties }) => properties?.[tell]?.enum ?? []);
  const chosen = schemas.find(({ properties }) => properties?.[tell]?.enum?.includes(own));
  if (chosen) return check(chosen, value, at);
  const param = `${at}.${tell}`;
  if (own === undefined) return { param, message: `${param} is missing` };
  return { param, message: `${param} must be ${oneOf(values)}, not ${show(own)}` };
}

const oneOf = (values: readonly unknown[]) => values.map((one) => JSON.stringify(one)).join(" or ");
const named = (schemas: readonly Schema[]) => schemas.map(expected).join(", or ");

function expected(schema: Schema): string {
  if (schema["x-treatment"] === "refused") return "left out: it is not supported";
  if (schema.enum) return oneOf(schema.enum);
  if (schema.anyOf) return named(schema.anyOf);
  const { minimum, maximum, maxLength } = schema;
  const article = (type: TypeName) => (type === "null" ? type : `${/^[aio]/.test(type) ? "an" : "a"} ${type}`);
  const type = [schema.type ?? "object"].flat().map(article).join(" or ");
  const least = minimum === undefined ? "" : ` of at least ${minimum}`;
  const range = minimum !== undefined && maximum !== undefined ? ` from ${minimum} to ${maximum}` : least;
  return `${type}${range}${maxLength === undefined ? "" : ` of at most ${maxLength} characters`}`;
}

function wrong(schema: Schema, value: unknown, at: string, kind = true): Fault {
  const wanted = expected(schema);
  const message = `${at || "the body"} must be ${wanted}, not ${show(value)}`;
  return { param: at, message, ...(kind ? { expected: wanted } : {}) };
}
