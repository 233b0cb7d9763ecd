import type { Sampler } from "../types/index.ts";

/** The links of the sampler chain, in their order. */
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
