/** Spans for DevTools: noted where the work is done, shown in the timeline of the engine's owner. */

import type { TimeSpan } from "../rpc/user_timing.ts";
import type { EngineEvent } from "./events.ts";

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
