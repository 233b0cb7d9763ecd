/** Writes metrics as Prometheus' text format 0.0.4 and as OpenMetrics 1.0: families of samples in, text out. */

import type { Histogram, MetricsFormat } from "../types/index.ts";

export type Labels = Readonly<Record<string, string | number>>;

/** A metric: one sample for each set of labels. */
export type Family = { readonly name: string; readonly help: string } & (
  | {
      /** A counter's name ends in `_total`, else OpenMetrics has it as unknown; an `info` in `_info`, and its samples are 1. */
      readonly type: "counter" | "gauge" | "info";
      readonly samples: readonly (readonly [labels: Labels, value: number])[];
    }
  | { readonly type: "histogram"; readonly samples: readonly (readonly [labels: Labels, value: Histogram])[] }
);

export const CONTENT_TYPES: Readonly<Record<MetricsFormat, string>> = {
  prometheus: "text/plain; version=0.0.4; charset=utf-8",
  openmetrics: "application/openmetrics-text; version=1.0.0; charset=utf-8",
};

/** The same histogram with fewer bounds, each of which it has. */
export function coarser({ bounds, counts, sum }: Histogram, wanted: readonly number[]): Histogram {
  const merged: number[] = Array(wanted.length + 1).fill(0);
  for (const [i, count] of counts.entries()) {
    const at = i < bounds.length ? wanted.findIndex((bound) => bounds[i]! <= bound) : -1;
    merged[at < 0 ? wanted.length : at]! += count;
  }
  return { bounds: wanted, counts: merged, sum };
}

/** Families as text; those without samples are left out. Families of one name must come as one. */
export function write(families: readonly Family[], format: MetricsFormat = "prometheus"): string {
  const open = format === "openmetrics";
  const texts = families.filter(({ samples }) => samples.length > 0).map((family) => familyText(family, open));
  return texts.join("") + (open ? "# EOF\n" : "");
}

function familyText(family: Family, open: boolean): string {
  const { name, help, type } = family;
  // OpenMetrics names a family without the ending of its samples. Prometheus' text has no infos.
  const base = open && (type === "counter" || type === "info") ? name.replace(/_(total|info)$/, "") : name;
  const shown = shownType(family, open);
  const head = `# HELP ${base} ${escaped(help, open)}\n# TYPE ${base} ${shown}\n`;
  if (family.type === "histogram") {
    return head + family.samples.map(([labels, value]) => histogramText(name, labels, value)).join("");
  }
  return head + family.samples.map(([labels, value]) => line(name, labels, value)).join("");
}

function shownType({ name, type }: Family, open: boolean): string {
  if (type === "info" && !open) return "gauge";
  // OpenMetrics wants the ending of a counter, which other servers' names do not all have.
  return type === "counter" && open && !name.endsWith("_total") ? "unknown" : type;
}

function histogramText(name: string, labels: Labels, { bounds, counts, sum }: Histogram): string {
  let count = 0;
  const buckets = counts.map((own, i) => {
    count += own;
    return line(`${name}_bucket`, { ...labels, le: number(bounds[i] ?? Number.POSITIVE_INFINITY, true) }, count);
  });
  return [...buckets, line(`${name}_sum`, labels, sum), line(`${name}_count`, labels, count)].join("");
}

function line(name: string, labels: Labels, value: number): string {
  const pairs = Object.entries(labels).map(([key, text]) => `${key}="${escaped(String(text), true)}"`);
  return `${name}${pairs.length > 0 ? `{${pairs.join(",")}}` : ""} ${number(value)}\n`;
}

/** @param float whether a whole number shows a point, as OpenMetrics wants bounds */
function number(value: number, float = false): string {
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "+Inf" : "-Inf";
  return float && Number.isInteger(value) ? `${value}.0` : String(value);
}

/** A help text of Prometheus' format keeps its quotes. */
const escaped = (text: string, quotes: boolean) =>
  text
    .replaceAll("\\", "\\\\")
    .replaceAll("\n", "\\n")
    .replaceAll('"', quotes ? '\\"' : '"');

/** The format that an Accept header prefers: OpenMetrics only where it is named. */
export function formatFor(accept: string | null | undefined): MetricsFormat {
  const weights = { prometheus: 0, openmetrics: 0 };
  for (const part of (accept ?? "").toLowerCase().split(",")) {
    const [type = "", ...params] = part.split(";").map((text) => text.trim());
    const q = params.find((text) => text.startsWith("q="))?.slice(2);
    const weight = q === undefined ? 1 : Number(q) || 0;
    const version = params.find((text) => text.startsWith("version="))?.slice(8);
    if (type === "application/openmetrics-text" && (version ?? "1.0.0") === "1.0.0")
      weights.openmetrics = Math.max(weights.openmetrics, weight);
    else if (["text/plain", "text/*"].includes(type)) weights.prometheus = Math.max(weights.prometheus, weight);
  }
  return weights.openmetrics > 0 && weights.openmetrics >= weights.prometheus ? "openmetrics" : "prometheus";
}
