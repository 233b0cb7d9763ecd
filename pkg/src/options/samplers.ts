import type { Sampler } from "../types/index.ts";

/** The samplers of the chain, in their default order. */
export const samplers: readonly Sampler[] = [
  "penalties",
  "dry",
  "topNSigma",
  "topK",
  "typicalP",
  "topP",
  "minP",
  "xtc",
  "temperature",
];
