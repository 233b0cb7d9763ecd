/** Prometheus' text format, read: samples by the name of their metric, and histograms. */

const SAMPLE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/;
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g;
const ESCAPES = { "\\\\": "\\", '\\"': '"', "\\n": "\n" };
const SPECIAL = { "+Inf": Number.POSITIVE_INFINITY, "-Inf": Number.NEGATIVE_INFINITY };

/** What was exposed at one moment. */
export class Exposition {
  #samples = new Map();

  constructor(text) {
    for (const line of text.split("\n")) {
      const [, name, labels = "", value] = SAMPLE.exec(line) ?? [];
      if (name === undefined) continue;
      const entries = Array.from(labels.matchAll(LABEL), ([, key, text]) => [
        key,
        text.replace(/\\[\\"n]/g, (found) => ESCAPES[found]),
      ]);
      if (!this.#samples.has(name)) this.#samples.set(name, []);
      this.#samples.get(name).push({ labels: Object.fromEntries(entries), value: SPECIAL[value] ?? Number(value) });
    }
  }

  /** The values of a label, each once. */
  valuesOf(name, label) {
    return [...new Set(this.all(name).map(({ labels }) => labels[label]))];
  }

  /** Samples that have these labels, among others. */
  all(name, wanted = {}) {
    const fits = ({ labels }) => Object.entries(wanted).every(([key, value]) => labels[key] === value);
    return (this.#samples.get(name) ?? []).filter(fits);
  }

  /** The sum of samples; null where there is none. */
  value(name, wanted) {
    const found = this.all(name, wanted);
    return found.length > 0 ? found.reduce((sum, { value }) => sum + value, 0) : null;
  }

  /** A histogram with the count of each bucket alone; null where there is none. */
  histogram(name, wanted) {
    const buckets = this.all(`${name}_bucket`, wanted)
      .map(({ labels, value }) => ({ bound: SPECIAL[labels.le] ?? Number(labels.le), upTo: value }))
      .sort((a, b) => a.bound - b.bound);
    if (buckets.length === 0) return null;
    return {
      bounds: buckets.map(({ bound }) => bound),
      counts: buckets.map(({ upTo }, i) => upTo - (buckets[i - 1]?.upTo ?? 0)),
      sum: this.value(`${name}_sum`, wanted) ?? 0,
    };
  }
}

export const countOf = ({ counts }) => counts.reduce((sum, count) => sum + count, 0);

/** What came between two moments; all of it where the counts have begun anew meanwhile. */
export function since(now, before) {
  if (!before || before.counts.length !== now.counts.length) return now;
  const counts = now.counts.map((count, i) => count - before.counts[i]);
  if (counts.some((count) => count < 0)) return now;
  return { bounds: now.bounds, counts, sum: now.sum - before.sum };
}

/**
 * A quantile, as if the values of a bucket lay evenly in it. Null where there are none; `over` where it lies above the last bound, which is
 * given then.
 */
export function quantile(histogram, share) {
  const total = countOf(histogram);
  if (total === 0) return null;
  let left = share * total;
  for (const [i, count] of histogram.counts.entries()) {
    if (left > count || count === 0) {
      left -= count;
      continue;
    }
    const [from, to] = [histogram.bounds[i - 1] ?? 0, histogram.bounds[i]];
    if (!Number.isFinite(to)) return { value: from, over: true };
    return { value: from + (to - from) * (left / count), over: false };
  }
  return { value: histogram.bounds.findLast(Number.isFinite) ?? 0, over: true };
}
