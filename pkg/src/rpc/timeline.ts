/** Spans for DevTools: noted where the work is done, shown in the timeline of the engine's owner. */

import type { EngineEvent } from "./loop.ts";

export interface TimeSpan {
  track: string;
  name: string;
  color: "primary" | "secondary" | "tertiary";
  /** Milliseconds since 1970: each thread's own clock begins elsewhere. */
  start: number;
  end: number;
  properties: [string, string][];
}

export class Timeline {
  readonly #post: (spans: TimeSpan[]) => void;
  #spans: TimeSpan[] = [];
  /** When the batch under way began. */
  #batch: number | null = null;
  /** Requests that have read their prompts. */
  readonly #decoding = new Set<number>();

  constructor(post: (spans: TimeSpan[]) => void) {
    this.#post = post;
  }

  /** What began at `start`, by this thread's clock, and ends now. */
  add(track: string, name: string, start: number, facts: object = {}, color: TimeSpan["color"] = "tertiary"): void {
    const { timeOrigin } = performance;
    const properties = Object.entries(facts).map(([key, value]): [string, string] => [key, String(value)]);
    this.#spans.push({
      track,
      name,
      color,
      start: timeOrigin + start,
      end: timeOrigin + performance.now(),
      properties,
    });
  }

  /** A step goes on with a batch, or begins one. */
  begin(): void {
    this.#batch ??= performance.now();
  }

  /** A step has ended, and with it the batch where somebody was `served`: request, first position and count, of each. */
  end(served: Uint32Array, events: readonly (EngineEvent | number)[]): void {
    for (let i = 0; i < served.length; i += 3) {
      const [request, from, count] = [...served.subarray(i, i + 3)] as [number, number, number];
      const decodes = this.#decoding.has(request);
      const facts = { tokens: count, position: from, "requests in the batch": served.length / 3 };
      const [name, color] = decodes ? (["decode", "primary"] as const) : (["prefill", "secondary"] as const);
      this.add(`request ${request}`, `${name} ${count}`, this.#batch!, facts, color);
    }
    if (served.length > 0) this.#batch = null;
    for (const event of events) {
      if (typeof event === "number") continue;
      if (event.type === "prompt") this.#decoding.add(event.request);
      else if (event.type === "finished" || event.type === "failed") this.#decoding.delete(event.request);
    }
  }

  flush(): void {
    if (this.#spans.length > 0) this.#post(this.#spans.splice(0));
  }
}

/** Into this thread's timeline, as DevTools wants them for tracks of their own. */
export function show(spans: readonly TimeSpan[]): void {
  const own = (time: number) => Math.max(0, time - performance.timeOrigin);
  for (const { track, name, color, start, end, properties } of spans) {
    const tooltipText = [name, ...properties.map(([key, value]) => `${key}: ${value}`)].join(", ");
    const devtools = { dataType: "track-entry", track, trackGroup: "ternlight", color, properties, tooltipText };
    performance.measure?.(name, { start: own(start), end: own(end), detail: { devtools } });
  }
}
