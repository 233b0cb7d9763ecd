/** What follows from the option table: where options go. The build works these lists out, so that no page carries the table for them. */

import type { GenerateOptions } from "../types/index.ts";
import type { Kind, Option, Target } from "./option.ts";
import { functions, type GroupName, groups } from "./table.ts";

type Groups = typeof groups;
type Union<T> = T extends T ? { [Name in keyof T]: [Name, T[Name]] }[keyof T] : never;
export type Row = Union<Groups[GroupName]>;

/** The names of options that go there. */
export type NamesTo<To extends Target> = Row extends infer R
  ? R extends [infer Name, { to: To }]
    ? Name & string
    : never
  : never;

const rows = Object.values(groups).flatMap((group) => Object.entries<Option>(group));
const names = <To extends Target>(...to: To[]) =>
  rows.filter(([, option]) => (to as Target[]).includes(option.to)).map(([name]) => name as NamesTo<To>);

/** What the engine plans a model with. */
export const planOptions = names("plan");

const generating = [...functions.completeChat].flatMap((group) => Object.keys(groups[group]));
/** Which options of an answer cross to the worker as they are. */
export const answerOptions = names("host", "sampler").filter((name) =>
  generating.includes(name),
) as (keyof GenerateOptions)[];

const ofKind = (kind: (kind: Kind) => boolean) =>
  rows.filter(([, option]) => option.to === "sampler" && kind(option.kind)).map(([name]) => name);
/** The numbers of the sampler, in the order in which they cross to the engine: see `src/sampling/flat.rs`. */
export const samplerNumbers = [
  ...ofKind((kind) => typeof kind === "object" && "number" in kind),
  ...ofKind((kind) => typeof kind === "object" && "integer" in kind),
  ...ofKind((kind) => kind === "boolean"),
] as SamplerNumber[];

type SamplerNumber = Row extends infer R
  ? R extends [infer Name, { to: "sampler"; kind: { number: unknown } | { integer: unknown } | "boolean" }]
    ? Name & string
    : never
  : never;

/** Defaults that are sent, because the engine has others. */
export const samplerDefaults = Object.fromEntries(
  rows.filter(([, option]) => option.engineDefault !== undefined).map(([name, option]) => [name, option.default]),
) as { temperature: number; topK: number; topP: number };

/** Where models keep defaults of their own: an option, its field in generation_config.json, its key in GGUF headers, its range. */
export const modelDefaults = rows.flatMap(([name, { kind, model }]) => {
  if (!model || typeof kind !== "object" || "values" in kind) return [];
  const whole = "integer" in kind;
  return [{ name: name as ModelDefault, ...model, whole, range: whole ? kind.integer : kind.number }];
});

export type ModelDefault = Row extends infer R
  ? R extends [infer Name, { model: unknown }]
    ? Name & string
    : never
  : never;

export const maxAdapterBytes: number = groups.loading.maxAdapterBytes.default;
