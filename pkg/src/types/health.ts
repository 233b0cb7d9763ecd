/** How well a model is. */

import type { AbortSignal } from "./web.ts";

export type HealthState = "ok" | "warn" | "alert" | "unknown";

/**
 * `weights`: the share of weights in tiles whose packed bytes differ from what was loaded. `kvEntropy`: bits of what positions
 * of the cache do not have in common, of the layer that has fewest. `repetition`: the share of 3-grams in the last answers that were there
 * before. `zeroChannels`: the share of channels of activations that stay zero. `int8Saturation`, `kvSaturation`: the shares of codes at
 * their limit. `nonFinite`: NaNs, infinities and requests that failed of them. `perplexity`: of what the model writes, by its own logits.
 *
 * `nonFinite` counts since the load. The others are of the latest that was looked at: what is older counts less and less, or not at all.
 */
export type HealthSignalName =
  | "weights"
  | "kvEntropy"
  | "repetition"
  | "zeroChannels"
  | "int8Saturation"
  | "kvSaturation"
  | "nonFinite"
  | "perplexity";

export interface HealthThreshold {
  warn: number;
  alert: number;
}

export interface HealthSignal extends HealthThreshold {
  state: HealthState;
  /** null where nothing was measured. */
  value: number | null;
  unit: "share" | "bits" | "count" | "perplexity";
  /** What is worse. */
  worse: "above" | "below";
  /** What the value comes from, as numbers with names: of sums that are halved as they grow, what is left. */
  from: Readonly<Record<string, number>>;
  /** Of `kvEntropy`: bits of keys and values for each layer that attends; null for one that was not looked at yet. */
  layers?: readonly ({ keys: number; values: number } | null)[];
  /** Of `weights`: tiles that differ, by the number of their matrix in the order of a pass. At most 100. */
  places?: readonly { matrix: number; tile: number }[];
}

export type HealthThresholds = Partial<Record<HealthSignalName, HealthThreshold>>;

/** The load option `health`. */
export interface HealthWatch {
  /** The share of a core that watching may take, from 0 to 1; with 1 every step is looked at. @default 0.004 */
  share?: number | undefined;
  /** Thresholds of signals; the others keep theirs. */
  thresholds?: HealthThresholds | undefined;
}

export interface Health {
  /** The worst state of a signal that is known. */
  state: HealthState;
  /** Whether the load option `health` is on, and not at rest. Without it, only `repetition` and `nonFinite` are known. */
  watched: boolean;
  /** The share of a core that watching has taken since the load, without the time that it rested. */
  share: number;
  signals: Readonly<Record<HealthSignalName, HealthSignal>>;
  /** Thresholds for this model, if it was well so far: what was measured, with the distance that the given ones leave. */
  calibrated: HealthThresholds;
}

export interface HealthOptions {
  /** Compares all weights now, in place of the tiles that their turn has come to. @default false */
  full?: boolean | undefined;
  /**
   * Damages the model in memory, to see an alarm rise: changes one code in each of so many tiles, or makes a scale NaN. It needs the load
   * option `health`; only another load repairs the model.
   * @default none
   */
  damage?: { codes?: number; nan?: boolean } | undefined;
  /**
   * false lets watching rest: steps are as without the load option `health`, which it needs, and weights are not compared. true lets it go on.
   * @default as it is
   */
  watch?: boolean | undefined;
  /** Aborts the call; the promise rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
}
