/** From what a caller names to its bytes, where a hub may have to be asked first. */

import type { ModelSource } from "../types/index.ts";
import type { OnHub } from "./hub.ts";
import { type SourceSpec, type SpecRules, toSpec } from "./spec.ts";

export interface SourceRules extends SpecRules {
  /** Finds the names of models on a hub. */
  onHub?: OnHub;
}

/** Works with what a caller's source means, and with what is to be told of it. */
export function withSource<T>(
  rules: SourceRules,
  source: ModelSource,
  given: Parameters<OnHub>[1],
  work: (spec: SourceSpec, told: readonly string[]) => Promise<T>,
): Promise<T> {
  const onHub = typeof source === "string" && source.startsWith("hf:") && rules.onHub;
  return onHub ? onHub(source, given, work) : work(toSpec(source, rules), []);
}
