/** Thresholds of a model's health in a file, as `health --calibrate` writes them. */

import { signalNames } from "../metrics/signals.ts";
import { EngineError } from "../types/errors.ts";
import type { HealthSignalName, HealthThresholds, LoadOptions } from "../types/index.ts";
import type { Args } from "./args.ts";
import { readText } from "./file.ts";

export async function readThresholds(option: string, file: string): Promise<HealthThresholds> {
  const text = await readText(file, option);
  let found: HealthThresholds;
  try {
    found = JSON.parse(text);
  } catch (cause) {
    throw new EngineError("BadValue", `${file} is not JSON`, { option, file }, { cause });
  }
  const wrong = (what: string) => new EngineError("BadValue", `${option}: ${file} ${what}`, { option, file });
  if (typeof found !== "object" || found === null || Array.isArray(found)) throw wrong("must have an object");
  for (const [name, limits] of Object.entries(found)) {
    if (!signalNames.includes(name as HealthSignalName))
      throw wrong(`names ${JSON.stringify(name)}; signals are ${signalNames.join(", ")}`);
    for (const key of ["warn", "alert"] as const)
      if (!Number.isFinite(limits?.[key])) throw wrong(`must have a number at ${name}.${key}`);
  }
  return found;
}

/** The options of a load with what the flags say of its health: each of them turns it on. */
export async function watched(args: Args, load: LoadOptions): Promise<LoadOptions> {
  const { healthThresholds: file, healthShare: share } = args.own<{ healthThresholds?: string; healthShare?: number }>(
    "watchFlags",
  );
  if (file === undefined && share === undefined) return load;
  const thresholds = file === undefined ? {} : { thresholds: await readThresholds("--health-thresholds", file) };
  return { ...load, health: { ...(share === undefined ? {} : { share }), ...thresholds } };
}
