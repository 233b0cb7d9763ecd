/** Stop texts in a stream of pieces: they may span pieces and are never shown. */

import { EngineError } from "../types/errors.ts";
import { MAX_STOP_LENGTH, MAX_STOPS } from "./limits.ts";

export interface StopMatch {
  stop: string;
  /** Where it begins in the whole text, in UTF-16 units; the text shown ends there. */
  position: number;
}

/**
 * Finds the stop text that begins first, as a search of the whole text would. What could still become one is held back;
 * where a stop text is found inside such a candidate that begins earlier, the next pieces decide.
 */
export class StopMatcher {
  match: StopMatch | null = null;
  readonly #stops: readonly string[];
  readonly #longest: number;
  #held = "";
  /** UTF-16 units already shown. */
  #shown = 0;

  constructor(stops: readonly string[]) {
    if (stops.length > MAX_STOPS) {
      throw new EngineError("InvalidArgument", `stop: ${stops.length} texts, at most ${MAX_STOPS} are allowed`, {
        option: "stop",
      });
    }
    for (const stop of stops) {
      if (stop === "" || stop.length > MAX_STOP_LENGTH) {
        const message = `stop: a text of length ${stop.length}; from 1 to ${MAX_STOP_LENGTH} is allowed`;
        throw new EngineError("InvalidArgument", message, { option: "stop" });
      }
    }
    this.#stops = stops;
    this.#longest = Math.max(0, ...stops.map((stop) => stop.length));
  }

  /** The text that may be shown now. Once `match` is set the text has ended. */
  push(piece: string): string {
    if (this.match) return "";
    this.#held += piece;
    const candidate = this.#candidate();
    const found = this.#find();
    if (found && found.at <= candidate) return this.#end(found);
    return this.#show(candidate);
  }

  /** The text that was held back, when nothing more comes. */
  flush(): string {
    if (this.match) return "";
    const found = this.#find();
    return found ? this.#end(found) : this.#show(this.#held.length);
  }

  /** Where the longest end of the held text begins that could grow into a stop text. */
  #candidate(): number {
    const { length } = this.#held;
    for (let at = Math.max(0, length - this.#longest + 1); at < length; at++) {
      if (this.#stops.some((stop) => stop.length > length - at && stop.startsWith(this.#held.slice(at)))) return at;
    }
    return length;
  }

  #find(): { at: number; stop: string } | null {
    let first: { at: number; stop: string } | null = null;
    for (const stop of this.#stops) {
      const at = this.#held.indexOf(stop);
      if (at >= 0 && (first === null || at < first.at)) first = { at, stop };
    }
    return first;
  }

  #end(found: { at: number; stop: string }): string {
    this.match = { stop: found.stop, position: this.#shown + found.at };
    const text = this.#held.slice(0, found.at);
    this.#held = "";
    return text;
  }

  #show(end: number): string {
    const text = this.#held.slice(0, end);
    this.#held = this.#held.slice(end);
    this.#shown += end;
    return text;
  }
}
