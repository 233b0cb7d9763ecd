/** Spans for DevTools. They are recorded where the work is done and shown in the timeline of the engine's owner. */

import type { TimeSpan } from "../rpc/user_timing.ts";
import type { EngineEvent } from "./events.ts";

export class Timeline {
  readonly #post: (spans: TimeSpan[]) => void;
  #spans: TimeSpan[] = [];
  /** When the batch that is being computed began; null between batches. */
  #batch: number | null = null;
  /** Requests whose prompts are read. */
  readonly #decoding = new Set<number>();

  constructor(post: (spans: TimeSpan[]) => void) {
    this.#post = post;
  }

  /** Records a span that began at `start`, by this thread's clock, and ends now. */
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

  /** A step begins a batch, or continues one. */
  begin(): void {
    this.#batch ??= performance.now();
  }

  /**
   * A step has ended. The batch has ended with it if any request was served: `served` has request, first position and count of each.
   * A batch of the warm-up, which is `known` to nobody, may end here too.
   */
  end(served: Uint32Array, events: readonly (EngineEvent | number)[], known: (request: number) => boolean): void {
    for (let i = 0; i < served.length; i += 3) {
      const [request, from, count] = [...served.subarray(i, i + 3)] as [number, number, number];
      if (!known(request)) continue;
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
