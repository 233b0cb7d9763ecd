/** The signals of a model's health, in the order in which they are shown. */

import type { HealthSignalName } from "../types/index.ts";

export const signalNames: readonly HealthSignalName[] = [
  "weights",
  "kvEntropy",
  "repetition",
  "zeroChannels",
  "int8Saturation",
  "kvSaturation",
  "nonFinite",
  "perplexity",
];
