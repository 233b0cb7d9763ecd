/** Which settings suit a load, from what they take and what they were measured to give. */

import { canRun, inspect, load, type Outside } from "../api/model.ts";
import { checkAll } from "../options/check.ts";
import { advising } from "../options/table/operating.ts";
import type { CanRun, Description, LoadOptions, ModelSource } from "../types/index.ts";
import { estimate, probe } from "./probe.ts";
import { type Load, percentile, play, type Steps } from "./simulate.ts";
import type { Prediction, Recommendation, RecommendOptions } from "./types.ts";

const BLOCK = 32;
const CHUNK = 256;
/** The most requests at once that are considered. */
const MOST = 64;
/** A smaller number of requests at once is taken where it gives so much of the best speed. */
const ENOUGH = 0.97;
/** The most requests at once that are measured; beyond, it is a straight line to a chunk of a prompt. */
const PROBED = 16;

interface Candidate {
  settings: Recommendation["settings"];
  verdict: CanRun;
  predicted: Prediction;
  p95Ms: number;
  fits: boolean;
  missing: string | null;
}

export async function recommend(
  outside: Outside,
  source: ModelSource,
  given: RecommendOptions = {},
): Promise<Recommendation> {
  const { signal, ...options } = checkAll("recommend", advising, given);
  const { users = 1, promptTokens = 128, answerTokens = 64, device, memory, p95Ms } = options;
  const about = await inspect(outside, source, { signal });
  const tokens = BLOCK * Math.ceil((promptTokens + answerTokens + 1) / BLOCK);
  const settingsOf = (maxSequences: number): LoadOptions => ({
    maxSequences,
    prefillChunk: CHUNK,
    maxBatchTokens: CHUNK + maxSequences,
    contextLength: tokens,
    kvCacheTokens: tokens * maxSequences,
    maxWaiting: Math.max(32, users),
  });
  const sizes = sizesFor(users);
  const { steps, threads, flavour } = device
    ? { ...device, steps: estimate(device, about, [1, 4, 16, 64, CHUNK]) }
    : await measure(outside, source, settingsOf(Math.min(PROBED, sizes.at(-1)!)), signal);
  const candidates: Candidate[] = [];
  for (const maxSequences of sizes) {
    const build = { threads, flavour: flavour.endsWith("relaxed") ? "relaxed" : "simd128" } as const;
    const settings = { ...build, ...settingsOf(maxSequences) };
    const room = await roomFor(outside, source, settings, about, { signal, memory, free: device?.freeMemory });
    const load = { users, promptTokens, answerTokens, maxSequences, prefillChunk: CHUNK };
    candidates.push(candidateOf(room, load, steps, { settings, p95Ms }));
  }
  return chosen(candidates, { about, steps, measured: device ? "a report" : "this machine", users, p95Ms });
}

/** Powers of two up to the users, and the users themselves. */
function sizesFor(users: number): number[] {
  const most = Math.min(users, MOST);
  const powers = [1, 2, 4, 8, 16, 32, 64].filter((size) => size < most);
  return [...powers, most];
}

async function measure(
  outside: Outside,
  source: ModelSource,
  settings: LoadOptions,
  signal: RecommendOptions["signal"],
): Promise<{ steps: Steps; threads: number; flavour: string }> {
  const { maxSequences: most = 1 } = settings;
  const contextLength = Math.max(settings.contextLength ?? 0, CHUNK + BLOCK);
  const model = await load(outside, source, {
    ...settings,
    contextLength,
    kvCacheTokens: contextLength * most,
    signal,
  });
  try {
    const { threads, flavour } = model.info;
    return { threads, flavour, steps: await probe(model, { most, prefillChunk: CHUNK, signal }) };
  } finally {
    await model.close();
  }
}

interface Fitting {
  verdict: CanRun;
  kvCacheType: Recommendation["settings"]["kvCacheType"];
  head: Recommendation["settings"]["head"];
  available: number;
}

/** The most precise cache and head with which the model fits; the smallest ones where none does. */
async function roomFor(
  outside: Outside,
  source: ModelSource,
  settings: LoadOptions,
  about: Description,
  {
    signal,
    memory,
    free,
  }: { signal?: RecommendOptions["signal"]; memory?: number | undefined; free?: number | null | undefined },
): Promise<Fitting> {
  const heads = about.heads.map(({ head }) => head);
  let last: Fitting | null = null;
  for (const head of heads) {
    for (const kvCacheType of ["f32", "f16", "q8", "q4"] as const) {
      const verdict = await canRun(outside, source, { ...settings, kvCacheType, head, signal });
      const available = Math.min(memory ?? free ?? verdict.available, verdict.available);
      last = { verdict, kvCacheType, head, available };
      if (verdict.needed.total <= available) return last;
    }
  }
  return last!;
}

function candidateOf(
  { verdict, kvCacheType, head, available }: Fitting,
  load: Load,
  steps: Steps,
  { settings, p95Ms }: { settings: LoadOptions; p95Ms: number | undefined },
): Candidate {
  const { tokensPerSecond, firstMs, wholeMs } = play(steps, load);
  const spread = (values: readonly number[]) => ({ p50: percentile(values, 0.5), p95: percentile(values, 0.95) });
  const answerMs = spread(wholeMs);
  const lacking = verdict.needed.total - available;
  const missing =
    lacking > 0
      ? `${lacking} bytes of memory: the model needs ${verdict.needed.total} even with a ${kvCacheType} cache and the head ${head}, and there are ${available}`
      : p95Ms !== undefined && answerMs.p95 > p95Ms
        ? `speed: 95 of 100 answers are whole after ${Math.round(answerMs.p95)} ms, and ${p95Ms} ms were asked for`
        : null;
  return {
    settings: { ...settings, kvCacheType, head } as Recommendation["settings"],
    verdict,
    predicted: { tokensPerSecond, firstTokenMs: spread(firstMs), answerMs, memory: verdict.needed },
    p95Ms: answerMs.p95,
    fits: missing === null,
    missing,
  };
}

interface Grounds {
  about: Description;
  steps: Steps;
  measured: Recommendation["measured"];
  users: number;
  p95Ms: number | undefined;
}

function chosen(candidates: readonly Candidate[], { about, steps, measured, users, p95Ms }: Grounds): Recommendation {
  const inMemory = candidates.filter(({ verdict, missing }) => verdict && !missing?.includes("bytes of memory"));
  const fitting = candidates.filter(({ fits }) => fits);
  const pool = fitting.length > 0 ? fitting : inMemory.length > 0 ? inMemory : candidates.slice(0, 1);
  const speed = (one: Candidate) => one.predicted.tokensPerSecond;
  const best = Math.max(...pool.map(speed));
  // Where nothing is fast enough, the nearest.
  const byTime = [...pool].sort((a, b) => a.p95Ms - b.p95Ms)[0]!;
  const found = fitting.length > 0 ? pool.find((one) => speed(one) >= ENOUGH * best)! : byTime;
  const { settings, predicted, fits, missing } = found;
  const [{ bytesPerToken }] = about.heads as [Description["heads"][number]];
  const one = steps[0]!;
  return {
    fits,
    missing,
    settings,
    predicted,
    considered: candidates.map((candidate) => ({
      maxSequences: candidate.settings.maxSequences!,
      tokensPerSecond: speed(candidate),
      p95Ms: candidate.p95Ms,
      memoryBytes: candidate.predicted.memory.total,
      fits: candidate.fits,
    })),
    why: [
      `a step with one request takes ${one.ms.toFixed(2)} ms (${measured}) and reads ${(bytesPerToken / 1e6).toFixed(1)} MB of weights once for all requests in it`,
      `of ${candidates.map((each) => each.settings.maxSequences).join(", ")} requests at once for ${users} ${users === 1 ? "user" : "users"}, ${settings.maxSequences} ${
        fits
          ? `is the fewest with ${Math.round(100 * ENOUGH)} % of the best speed`
          : "comes nearest to what was asked for"
      }${p95Ms === undefined ? "" : ` within ${p95Ms} ms`}`,
      `the context holds a prompt and its answer, and the cache ${settings.maxSequences} of them in ${settings.kvCacheType}, the most precise type that fits`,
      `prompts are read ${settings.prefillChunk} tokens at a time: more gain nothing, fewer read the weights more often`,
    ],
    steps: [...steps],
    measured,
  };
}
