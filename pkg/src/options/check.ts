/** Checks of values, by the kinds of the option table. */

import { EngineError } from "../types/errors.ts";
import { meant } from "./nearest.ts";
import { type Kind, MAX_TOKENS, type NamedKind, type Range } from "./option.ts";
import { checkResponseFormat } from "./response_format.ts";
import { samplers } from "./samplers.ts";
import { show } from "./show.ts";

/** Answers what a value should be, or null where it is that. */
export type Check = (value: unknown) => string | null;

const expect =
  (holds: (value: unknown) => boolean, expected: string): Check =>
  (value) =>
    holds(value) ? null : expected;

export const isObject: Check = expect(
  // A Map's entries are no options.
  (value) => typeof value === "object" && value !== null && !(Symbol.iterator in value),
  "an object",
);

const within = (value: unknown, [least, most]: Range) => typeof value === "number" && value >= least && value <= most;
const isText = (value: unknown) => typeof value === "string" && value !== "";
const isId = (value: unknown) => Number.isInteger(value) && within(value, [0, MAX_TOKENS]);
const isIds = (value: unknown) => Array.isArray(value) && value.length > 0 && value.every(isId);
const isHash = (value: unknown) =>
  typeof value === "string" && /^([0-9a-f]{64}|sha256-[A-Za-z0-9+/]{43}=)$/i.test(value);
const isBias = ([id, bias]: [string, unknown]) => /^\d{1,9}$/.test(id) && typeof bias === "number" && bias <= 1e30;

function isAdapter(value: unknown): boolean {
  const { name, scale = 1, ...rest } = (isObject(value) === null ? value : {}) as { name?: unknown; scale?: unknown };
  return typeof name === "string" && within(scale, [-1000, 1000]) && Object.keys(rest).length === 0;
}

const isMessage = (value: unknown) => typeof (value as { role?: unknown } | null)?.role === "string";
const isList = (value: unknown) => Array.isArray(value) || value instanceof Uint32Array || value instanceof Int32Array;

function isPrefill(value: unknown): boolean {
  if (isText(value) || value instanceof Uint8Array) return true;
  if (isList(value)) return isIds([...(value as number[])]) || isMessages(value);
  const { messages, tools = [], templateOptions = {}, ...rest } = Object(value) as Record<string, unknown>;
  return isMessages(messages) && Array.isArray(tools) && !isObject(templateOptions) && Object.keys(rest).length === 0;
}

/** A hole in a list counts as undefined. */
const every = (value: unknown, one: (value: unknown) => boolean) => Array.isArray(value) && [...value].every(one);
const entries = (value: unknown, one: (entry: [string, unknown]) => boolean) =>
  isObject(value) === null && Object.entries(value as object).every(one);
const isMessages = (value: unknown) => every(value, isMessage) && (value as unknown[]).length > 0;

function isDamage(value: unknown): boolean {
  const { codes = 0, nan = false, ...rest } = Object(value) as Record<string, unknown>;
  return isId(codes) && typeof nan === "boolean" && nothing(rest);
}

function isWatch(value: unknown): boolean {
  const { share = 0, thresholds = {}, ...rest } = Object(value) as Record<string, unknown>;
  const limits = ([, limit]: [string, unknown]) => entries(limit, ([, number]) => Number.isFinite(number));
  return isObject(value) === null && within(share, [0, 1]) && entries(thresholds, limits) && nothing(rest);
}

const nothing = (rest: object) => Object.keys(rest).length === 0;
const quoted = (values: readonly string[]) => values.map((value) => `"${value}"`).join(", ");

const named: Record<NamedKind, Check> = {
  adapters: expect((value) => every(value, isAdapter), "a list of { name, scale }, scales from -1000 to 1000"),
  bannedSequences: expect(
    (value) => every(value, (one) => isText(one) || isIds(one)),
    "a list of texts and lists of token ids",
  ),
  boolean: expect((value) => typeof value === "boolean", "true or false"),
  cache: expect((value) => typeof value === "boolean" || isText(value), "true, false or a directory"),
  damage: expect(isDamage, "{ codes, nan }"),
  function: expect((value) => typeof value === "function", "a function"),
  health: expect((value) => typeof value === "boolean" || isWatch(value), "true, false or { share, thresholds }"),
  integrity: expect(
    (value) => isHash(value) || entries(value, ([, hash]) => isHash(hash)),
    "a SHA-256 (64 hex digits, or sha256- and base64) or an object of them by file name",
  ),
  list: expect(Array.isArray, "a list"),
  logitBias: expect((value) => entries(value, isBias), "an object of token ids with numbers or -Infinity"),
  module: expect((value) => value instanceof WebAssembly.Module, "a WebAssembly module"),
  object: isObject,
  prefill: expect(
    isPrefill,
    "a text, token ids, messages, { messages, tools, templateOptions } or what session.save() gave",
  ),
  responseFormat: checkResponseFormat,
  samplers: expect(
    (value) => every(value, (one) => samplers.some((name) => name === one)),
    `a list of ${quoted(samplers)}`,
  ),
  signal: expect((value) => value instanceof AbortSignal, "an AbortSignal"),
  stop: expect(
    (value) => typeof value === "string" || every(value, (one) => typeof one === "string"),
    "a string or a list of strings",
  ),
  text: expect(isText, "a text that is not empty"),
  texts: expect((value) => every(value, isText), "a list of texts"),
  toolChoice: expect(
    (value) => ["auto", "none", "required"].includes(value as string) || typeof toolNamed(value) === "string",
    '"auto", "none", "required" or { name }',
  ),
};

/** The tool that a choice names, in our shape or in OpenAI's. */
export function toolNamed(choice: unknown): string | undefined {
  const { name, function: inner } = (choice ?? {}) as { name?: string; function?: { name?: string } };
  return name ?? inner?.name;
}

/** The check of a kind. */
export function checkOf(kind: Kind): Check {
  if (typeof kind === "string") return named[kind];
  if ("values" in kind) {
    const { values, map } = kind;
    const fits = (value: unknown) => values.includes(value as string) || (map && isObject(value) === null);
    return expect((value) => !!fits(value), quoted(values) + (map ? " or a map" : ""));
  }
  const integer = "integer" in kind;
  const [least, most] = integer ? kind.integer : kind.number;
  const holds = (value: unknown) => within(value, [least, most]) && (!integer || Number.isInteger(value));
  return expect(holds, `${integer ? "an integer" : "a number"} from ${least} to ${most}`);
}

/** As much of the table's rows as checking needs. */
export type Known = Readonly<Record<string, { readonly kind: Kind; readonly was?: string }>>;

/**
 * Refuses names that are not known and values of another kind; what is undefined counts as left out.
 *
 * @returns what was given of the known names, inherited or not, as an object of its own
 */
export function checkAll<T extends object>(label: string, known: Known, options: T | undefined): T {
  const given: Record<string, unknown> = {};
  if (options === undefined) return given as T;
  if (isObject(options)) throw wrong(label, "options", "an object", options);
  for (const option of Object.keys(options)) if (!Object.hasOwn(known, option)) throw unknown(label, known, option);
  for (const [option, { kind }] of Object.entries(known)) {
    const value = (options as Record<string, unknown>)[option];
    if (value !== undefined) given[option] = checked(label, option, checkOf(kind), value);
  }
  return given as T;
}

/** An option of another version is refused with its name in this one. */
function unknown(label: string, known: Known, option: string): EngineError {
  const now = Object.entries(known).find(([, { was }]) => was === option);
  const names = Object.keys(known);
  const expected = now ? now[0] : names.join(", ");
  const near = meant(option, names);
  const instead = now
    ? `it is ${expected} now: ${checkOf(now[1].kind)(undefined)}`
    : `${near ? `did you mean ${near}? There` : "there"} are ${expected}`;
  return new EngineError("InvalidArgument", `${label}: there is no option "${option}"; ${instead}`, {
    option,
    expected,
  });
}

export function checked<T>(label: string, option: string, check: Check, value: T): T {
  const expected = check(value);
  if (expected) throw wrong(label, option, expected, value);
  return value;
}

export function wrong(label: string, option: string, expected: string, value: unknown): EngineError {
  const list = Array.isArray(value) && expected.includes("list");
  const found = !list
    ? show(value)
    : value.length > 0
      ? `[${Array.from(value.slice(0, 5), show).join(", ")}]`
      : "one without any";
  return new EngineError("InvalidArgument", `${label}: ${option} must be ${expected}, not ${found}`, {
    option,
    expected,
    found,
  });
}
