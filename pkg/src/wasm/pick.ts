import flavours from "../../flavours.json" with { type: "json" };
import { EngineError } from "../types/errors.ts";
import type { Flavour } from "../types/index.ts";
import type { Features } from "./features.ts";

export interface BuildChoice {
  /** A name from flavours.json. */
  flavour: string;
  /** The engine's own worker included. */
  threads: number;
  /** Why these are fewer than the cores, in words; null where they are not. */
  threadsReason: string | null;
}

/** More threads gain nothing where memory is the limit, and they wait by spinning. */
const MAX_THREADS = 8;

/**
 * Decides which build runs and with how many threads. A choice of the caller that this runtime cannot fulfil is an error; defaults adapt.
 *
 * @param physical cores without hyper-threads, where they are told: two threads of one core share the units that multiply
 */
export function pick(
  features: Features,
  cores: number,
  wish: { threads?: number; flavour?: Flavour } = {},
  physical?: number | null,
): BuildChoice {
  const simd = pickSimd(features, wish.flavour ?? "auto");
  const { threads, threadsReason } = pickThreads(features, cores, wish.threads, physical ?? cores);
  const row = flavours.find((row) => row.simd === simd && row.threads === threads > 1);
  if (!row) throw new Error(`flavours.json has no ${simd} build for ${threads} threads`);
  return { flavour: row.name, threads, threadsReason };
}

function pickSimd(features: Features, wish: Flavour): "relaxed" | "simd128" {
  if (!features.simd128) {
    throw new EngineError("UnsupportedRuntime", "this runtime's WebAssembly has no SIMD (simd128)", {
      expected: "simd128",
    });
  }
  if (wish === "auto") return features.relaxed === "exact" ? "relaxed" : "simd128";
  if (wish === "relaxed" && features.relaxed !== "exact") {
    const why = features.relaxed === "wrong" ? "computes relaxed SIMD wrongly" : "has no relaxed SIMD";
    throw new EngineError("UnsupportedOption", `flavour "relaxed": this runtime ${why}; "auto" takes simd128`, {
      option: "flavour",
      found: wish,
    });
  }
  return wish;
}

function pickThreads(
  features: Features,
  cores: number,
  wish: number | undefined,
  physical: number,
): { threads: number; threadsReason: string | null } {
  if (wish !== undefined && wish > 1 && features.unshared) {
    throw new EngineError("UnsupportedOption", `threads: ${wish} need shared memory, but ${features.unshared}`, {
      option: "threads",
      found: String(wish),
    });
  }
  if (features.unshared) return { threads: 1, threadsReason: cores > 1 ? features.unshared : null };
  const threads = Math.min(wish ?? Math.min(MAX_THREADS, physical), cores);
  if (threads === cores) {
    const fewer = wish !== undefined && wish > cores;
    const threadsReason = fewer ? `threads: ${wish} were asked for, and there are ${cores} cores` : null;
    return { threads, threadsReason };
  }
  if (wish !== undefined) return { threads, threadsReason: `threads: ${wish} was asked for` };
  const few = threads === physical;
  return {
    threads,
    threadsReason: few
      ? `hyper-threads and parts of a core gain nothing`
      : `more than ${MAX_THREADS} threads gain nothing`,
  };
}
