/** The model of a job as workers have it, for a machine that submits without loading it. */

import type { Answerer } from "../batch/answerer.ts";
import { EngineError } from "../types/errors.ts";
import type { Args } from "./args.ts";
import type { Library, Place } from "./batch_library.ts";
import { named } from "./served.ts";
import { UsageError } from "./syntax.ts";

/** What answers depend on is then as the workers were told. */
const OTHERS = {
  defaultMaxTokens: "--default-max-tokens",
  contextLength: "--context",
  kvCacheType: "--kv",
  activations: "--activations",
  chatTemplate: "--chat-template",
} as const;

/** @param model `[NAME=]MODEL`, of which the name alone counts */
export async function ofAttached(
  args: Args,
  model: string,
  place: Place,
  { attached }: Pick<Library, "attached">,
): Promise<Pick<Answerer, "identity" | "facts" | "name">> {
  for (const [option, flag] of Object.entries(OTHERS)) {
    if (args.has(option as keyof typeof OTHERS))
      throw new UsageError(`${flag} does not go with --attached`, { option: flag });
  }
  const { name } = named(model);
  const all = await attached(place);
  const kinds = [...new Map(all.filter((one) => one.model === name).map((one) => [one.identity, one])).values()];
  const [first, second] = kinds;
  if (first && !second) return { identity: first.identity, facts: first.facts, name };
  const detail = { option: "--attached" };
  if (first && second) {
    const off = Object.keys(first.facts).filter((fact) => first.facts[fact] !== second.facts[fact]);
    const message = `workers of ${kinds.length} kinds are attached as ${name}, which differ in ${off.join(", ")}`;
    throw new EngineError(
      "InvalidArgument",
      `${message}; without --attached the model here tells which are meant`,
      detail,
    );
  }
  const names = [...new Set(all.map((one) => one.model))].sort();
  const others = names.length > 0 ? `; there are some of ${names.join(", ")}` : "";
  throw new EngineError("NotFound", `no worker of ${name} is attached${others}`, detail);
}
