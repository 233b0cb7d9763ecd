/** From values to states. */

import { signalNames } from "../metrics/signals.ts";
import { EngineError } from "../types/errors.ts";
import type { Health, HealthSignal, HealthSignalName, HealthState, HealthThresholds } from "../types/index.ts";

interface Row {
  unit: HealthSignal["unit"];
  worse: HealthSignal["worse"];
  warn: number;
  alert: number;
  /** Whether models differ in it, so that a calibration keeps a distance from what was measured. */
  own: boolean;
}

const above = (unit: HealthSignal["unit"], warn: number, alert: number, own = false): Row => ({
  unit,
  worse: "above",
  warn,
  alert,
  own,
});

const rows: Readonly<Record<HealthSignalName, Row>> = {
  weights: above("share", 0.0003, 0.002),
  kvEntropy: { unit: "bits", worse: "below", warn: 4.1, alert: 3.2, own: true },
  repetition: above("share", 0.08, 0.15),
  zeroChannels: above("share", 0.25, 0.5, true),
  int8Saturation: above("share", 0.05, 0.2, true),
  kvSaturation: above("share", 0.05, 0.15, true),
  nonFinite: above("count", 1, 1),
  perplexity: above("perplexity", 100, 1000, true),
};

/** Codes of few bits are at their limit more often: one of a row at least, and of a normal distribution so many. */
const KV_SATURATION: Readonly<Record<string, { warn: number; alert: number }>> = {
  q4: { warn: 0.1, alert: 0.25 },
  q2: { warn: 0.6, alert: 0.8 },
};

export interface Measure {
  value: number | null;
  from: Readonly<Record<string, number>>;
  /** Whether all was seen that there is: what is well so far may not be. @default true */
  whole?: boolean;
  layers?: HealthSignal["layers"];
  places?: HealthSignal["places"];
}

function stateOf(value: number | null, worse: HealthSignal["worse"], warn: number, alert: number): HealthState {
  if (value === null) return "unknown";
  const reached = (threshold: number) => (worse === "above" ? value >= threshold : value < threshold);
  if (Number.isNaN(value) || reached(alert)) return "alert";
  return reached(warn) ? "warn" : "ok";
}

const ORDER: readonly HealthState[] = ["unknown", "ok", "warn", "alert"];

export function assess(
  measures: Readonly<Record<HealthSignalName, Measure>>,
  given: HealthThresholds,
  { kvCacheType, watched, share }: { kvCacheType: string; watched: boolean; share: number },
): Health {
  const calibrated: HealthThresholds = {};
  const signals = Object.fromEntries(
    signalNames.map((name): [HealthSignalName, HealthSignal] => {
      const { own, unit, worse, ...byDefault } = rows[name];
      const usual = (name === "kvSaturation" && KV_SATURATION[kvCacheType]) || byDefault;
      const { warn, alert } = given[name] ?? usual;
      const { value, from, whole = true, ...more } = measures[name];
      if (own && whole && value !== null && Number.isFinite(value)) calibrated[name] = distant(value, unit, usual);
      const seen = stateOf(value, worse, warn, alert);
      const state = seen === "ok" && !whole ? "unknown" : seen;
      return [name, { state, value, warn, alert, unit, worse, from, ...more }];
    }),
  ) as Record<HealthSignalName, HealthSignal>;
  const states = Object.values(signals).map(({ state }) => ORDER.indexOf(state));
  return { state: ORDER[Math.max(...states)]!, watched, share, signals, calibrated };
}

/** Thresholds as far from a value as is usual: in bits by differences, else by factors, but for shares never above 1. */
function distant(value: number, unit: HealthSignal["unit"], { warn, alert }: { warn: number; alert: number }) {
  // Half a bit below what was measured, and below that what lies between the usual ones.
  if (unit === "bits") return { warn: value - 0.5, alert: value - 0.5 - (warn - alert) };
  if (unit === "perplexity") return { warn: 3 * value, alert: 10 * value };
  return { warn: value + (1 - value) * warn, alert: value + (1 - value) * alert };
}

/** Refuses thresholds of what is no signal, and those without both limits: who set them would wait for a warning in vain. */
export function checkThresholds(thresholds: HealthThresholds): void {
  for (const [name, limits] of Object.entries(thresholds)) {
    const known = signalNames.some((one) => one === name);
    if (known && "warn" in limits && "alert" in limits) continue;
    const expected = known ? "warn and alert" : signalNames.join(", ");
    const found = known ? Object.keys(limits).join(", ") : name;
    const message = `health: thresholds${known ? `.${name}` : ""}: expected ${expected}, found ${found}`;
    throw new EngineError("InvalidArgument", message, { option: "health", expected, found });
  }
}
