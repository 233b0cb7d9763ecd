/** Where a request comes from, by the header `traceparent` (W3C Trace Context), and its measurements in OpenTelemetry's names. */

import type { Finished } from "../types/index.ts";

export interface TraceParent {
  traceId: string;
  spanId: string;
  sampled: boolean;
}

/** Null for a header that is not valid, which is then ignored, as the standard says. */
export function readTraceParent(header: string | undefined): TraceParent | null {
  const found = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/.exec(header?.trim() ?? "");
  if (!found) return null;
  const [, version, traceId, spanId, flags, rest] = found as unknown as string[];
  if (version === "ff" || (version === "00" && rest) || /^0+$/.test(traceId!) || /^0+$/.test(spanId!)) return null;
  return { traceId: traceId!, spanId: spanId!, sampled: (Number.parseInt(flags!, 16) & 1) === 1 };
}

/** A measurement with a name and attributes of OpenTelemetry's conventions for generative AI. */
export interface Telemetry {
  name:
    | "gen_ai.server.request.duration"
    | "gen_ai.server.time_to_first_token"
    | "gen_ai.server.time_per_output_token"
    | "gen_ai.client.token.usage";
  unit: "s" | "{token}";
  value: number;
  attributes: Readonly<Record<string, string | number>>;
  trace?: TraceParent;
}

/** What is measured of an answer. */
export function measurements(
  { timings, tokens, promptTokens }: Finished,
  { model, operation, trace }: { model: string; operation: string; trace: TraceParent | undefined },
): Telemetry[] {
  const attributes = {
    "gen_ai.operation.name": operation,
    "gen_ai.provider.name": "ternlight",
    "gen_ai.request.model": model,
    "gen_ai.response.model": model,
  };
  const one = (name: Telemetry["name"], unit: Telemetry["unit"], value: number, more = {}): Telemetry => ({
    name,
    unit,
    value,
    attributes: { ...attributes, ...more },
    ...(trace ? { trace } : {}),
  });
  const { ttftMs, predictedMs, predictedN } = timings;
  const usage = (type: string, count: number) =>
    one("gen_ai.client.token.usage", "{token}", count, { "gen_ai.token.type": type });
  return [
    one("gen_ai.server.request.duration", "s", (ttftMs + Math.max(0, predictedMs)) / 1000),
    ...(predictedN > 0 ? [one("gen_ai.server.time_to_first_token", "s", ttftMs / 1000)] : []),
    ...(predictedN > 1 ? [one("gen_ai.server.time_per_output_token", "s", predictedMs / (predictedN - 1) / 1000)] : []),
    usage("input", promptTokens.length),
    usage("output", tokens.length),
  ];
}
