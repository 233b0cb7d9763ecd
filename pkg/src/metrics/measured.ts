/** What metrics are made of: a model with its name, and what it has counted. */

import type { Health, Histogram, HistogramName, ModelInfo, ModelStatus, Statistics } from "../types/index.ts";
import type { Family, Labels } from "./text.ts";

export interface Measured {
  name: string;
  info: ModelInfo;
  status: ModelStatus;
  statistics: Statistics;
  adapters: readonly string[];
  /** Where the model is watched. */
  health?: Health;
}

/** Families over models: each function takes what one model has. */
export interface Maker {
  number(
    type: "counter" | "gauge" | "info",
    name: string,
    help: string,
    value: (one: Measured) => number | [Labels, number][],
  ): Family;
  histogram(
    name: string,
    help: string,
    of: HistogramName,
    shown: (found: Histogram, one: Measured) => Histogram,
  ): Family;
}

/** @param labelsOf the labels of all samples of a model */
export function maker(all: readonly Measured[], labelsOf: (one: Measured) => Labels): Maker {
  return {
    number: (type, name, help, value) => ({
      type,
      name,
      help,
      samples: all.flatMap((one) => {
        const found = value(one);
        const each: [Labels, number][] = typeof found === "number" ? [[{}, found]] : found;
        return each.map(([labels, number]): [Labels, number] => [{ ...labelsOf(one), ...labels }, number]);
      }),
    }),
    histogram: (name, help, of, shown) => ({
      type: "histogram",
      name,
      help,
      samples: all.map((one) => [labelsOf(one), shown(one.statistics.histograms[of], one)]),
    }),
  };
}

export const countOf = ({ counts }: Histogram): number => counts.reduce((sum, count) => sum + count, 0);
