/** Which settings suit a load, from what they take and what they were measured to give. */

import { inspect, load, type Outside, once } from "../api/model.ts";
import { percentile } from "../bench/stats.ts";
import { checkAll } from "../options/check.ts";
import { checkOptions } from "../options/options.ts";
import { advising } from "../options/table/operating.ts";
import { withSource } from "../source/with_source.ts";
import type { CanRun, Description, Head, KvCacheType, LoadOptions, ModelSource } from "../types/index.ts";
import { estimate, type Probed, type ProbeOptions, probe, probeContext } from "./probe.ts";
import { type Load, play, type Steps } from "./simulate.ts";
import type { Prediction, Recommendation, RecommendOptions } from "./types.ts";

const BLOCK = 32;
/** Tokens of a prompt that a step reads: more gain nothing. Fewer take less memory. */
const CHUNKS = [256, 128, 64, 32];
/** The most requests at once that are considered. */
const MOST = 64;
/** A smaller number of requests at once is taken where it gives so much of the best speed. */
const ENOUGH = 0.97;
/** The most requests at once that are measured; beyond, it is a straight line to a chunk of a prompt. */
const PROBED = 16;

/** In order of precision. */
const CACHES = ["f32", "f16", "q8", "q4"] as const satisfies KvCacheType[];

type Settled = Omit<LoadOptions, "signal" | "onProgress">;
type Verdict = (settings: Settled) => Promise<CanRun>;

/** What is asked for, and what is settled. */
interface Question {
  users: number;
  promptTokens: number;
  answerTokens: number;
  p95Ms: number | undefined;
  memory: number | null | undefined;
  settled: Settled;
  /** The names of what the caller has settled. */
  kept: string[];
  /** Positions of a conversation. */
  tokens: number;
}

interface Candidate {
  settings: Recommendation["settings"];
  predicted: Prediction;
  p95Ms: number;
  /** Whether it fits into the memory. */
  hasRoom: boolean;
  /** Whether it also is as fast as was asked for. */
  fits: boolean;
  missing: string | null;
}

export async function recommend(
  outside: Outside,
  source: ModelSource,
  given: RecommendOptions = {},
): Promise<Recommendation> {
  const { signal, load: fixed, ...options } = checkAll("recommend", advising, given);
  const { users = 1, promptTokens = 128, answerTokens = 64, device, memory, p95Ms } = options;
  const { signal: _, onProgress: __, ...settled } = checkOptions("load", fixed);
  const about = await inspect(outside, source, { signal });
  const tokens = BLOCK * Math.ceil((promptTokens + answerTokens + 1) / BLOCK);
  const free = memory ?? device?.freeMemory;
  const question = {
    users,
    promptTokens,
    answerTokens,
    p95Ms,
    memory: free,
    settled,
    kept: Object.keys(settled),
    tokens,
  };
  const measured = device ? "a report" : "this machine";
  return once(outside, signal, async (client) => {
    const verdict: Verdict = (settings) =>
      withSource(outside, source, { signal }, (spec) =>
        client.call("canRun", { source: spec, settings, free: device?.freeMemory }, { signal }),
      );
    const from = async (times: Measured, question: Question) => {
      const candidates: Candidate[] = [];
      for (const size of sizesFor(question))
        candidates.push(await candidateOf(question, size, { about, times, verdict }));
      return chosen(candidates, { about, steps: times.steps, measured, question });
    };
    if (device) {
      const steps = estimate(device, about, [1, 4, 16, 64, CHUNKS[0]!]);
      return from({ ...device, steps, messageMs: 0, jitter: [], kvCacheType: null, head: null }, question);
    }
    const times = await measure(outside, source, { settings: probing(question, about), question, signal });
    const found = await from(times, question);
    const { kvCacheType, head } = found.settings;
    if (kvCacheType === times.kvCacheType && head === times.head) return found;
    // What was measured is not what is recommended: other types have other times.
    const again = { ...question, settled: { ...settled, kvCacheType, head } };
    const settings = probing(again, about);
    if (!(await verdict(settings)).ok) return found;
    return from(await measure(outside, source, { settings, question: again, signal }), again);
  });
}

/** Powers of two up to the users, and the users themselves; or the one that is settled. */
function sizesFor({ users, settled }: Question): number[] {
  if (settled.maxSequences !== undefined) return [settled.maxSequences];
  const most = Math.min(users, MOST);
  const powers = [1, 2, 4, 8, 16, 32, 64].filter((size) => size < most);
  return [...powers, most];
}

const chunksFor = ({ settled }: Question) => (settled.prefillChunk === undefined ? CHUNKS : [settled.prefillChunk]);

/** Options with so many requests at once; what is settled goes before. */
function settingsOf({ users, tokens, settled }: Question, maxSequences: number, prefillChunk: number) {
  const contextLength = settled.contextLength ?? tokens;
  return {
    maxSequences,
    prefillChunk,
    maxBatchTokens: Math.min(4096, prefillChunk + maxSequences),
    contextLength,
    kvCacheTokens: Math.max(contextLength, tokens * maxSequences),
    maxWaiting: Math.max(32, users),
    ...settled,
  };
}

/** Times of steps, and with what they were measured: null where they come from a report. */
interface Measured extends Probed {
  threads: number;
  flavour: string;
  kvCacheType: KvCacheType | null;
  head: Head | null;
}

const probesFor = (question: Question): ProbeOptions => ({
  ...question,
  most: Math.min(PROBED, sizesFor(question).at(-1)!),
  prefillChunk: chunksFor(question)[0]!,
});

/** Options of the load that is measured: with room for the probe, within the context that the model was trained for. */
function probing(question: Question, { config }: Description): Settled {
  const { most, prefillChunk, ...rest } = probesFor(question);
  const settings = settingsOf(question, most, prefillChunk);
  const longest = Math.max(probeContext(rest), settings.contextLength, prefillChunk + BLOCK);
  const contextLength = Math.min(config.contextLength, longest);
  return { ...settings, contextLength, kvCacheTokens: BLOCK * Math.ceil(contextLength / BLOCK) * most };
}

interface Measurement {
  settings: Settled;
  question: Question;
  signal: RecommendOptions["signal"];
}

async function measure(
  outside: Outside,
  source: ModelSource,
  { settings, question, signal }: Measurement,
): Promise<Measured> {
  const model = await load(outside, source, { ...settings, signal });
  try {
    const { threads, flavour, kvCacheType } = model.info;
    const probed = await probe(model, { ...probesFor(question), signal });
    return { threads, flavour, kvCacheType, head: settings.head ?? "stored", ...probed };
  } finally {
    await model.close();
  }
}

interface Grounds {
  about: Description;
  times: Measured;
  verdict: Verdict;
}

interface Fitting {
  needed: CanRun["needed"];
  available: number;
  settings: Recommendation["settings"];
}

/**
 * The most precise head and cache with which so many requests at once fit into the memory and are as fast as was asked for, each with the
 * longest chunk that fits; else the most precise that fit into the memory, else the smallest of all.
 */
async function candidateOf(question: Question, size: number, { about, times, verdict }: Grounds): Promise<Candidate> {
  const longest = chunksFor(question)[0];
  let found = null as Candidate | null;
  for await (const fitting of fittings(question, size, { about, times, verdict })) {
    const candidate = predictedFor(fitting, question, times);
    if (candidate.fits) return candidate;
    if (!found?.hasRoom) found = candidate;
    // Fewer bits make room for a longer chunk, which is faster: there is none.
    if (candidate.hasRoom && fitting.settings.prefillChunk === longest) break;
  }
  return found!;
}

async function* fittings(
  question: Question,
  size: number,
  { about, times, verdict }: Grounds,
): AsyncGenerator<Fitting> {
  const { settled, memory } = question;
  const heads = settled.head ? [settled.head] : about.heads.map(({ head }) => head);
  const caches = settled.kvCacheType && settled.kvCacheType !== "auto" ? [settled.kvCacheType] : CACHES;
  const flavour = times.flavour.endsWith("relaxed") ? "relaxed" : "simd128";
  const build = { threads: times.threads, flavour } as const;
  // One answer has all heads.
  const answers = new Map<string, CanRun>();
  for (const head of heads) {
    for (const kvCacheType of caches) {
      for (const prefillChunk of chunksFor(question)) {
        const settings = { ...build, ...settingsOf(question, size, prefillChunk), kvCacheType, head };
        const key = `${kvCacheType} ${prefillChunk}`;
        const answer = answers.get(key) ?? (await verdict(settings));
        answers.set(key, answer);
        const needed = answer.heads.find((choice) => choice.head === head)?.memory ?? answer.needed;
        const available = Math.min(memory ?? answer.available, answer.available);
        const last = prefillChunk === chunksFor(question).at(-1);
        if (needed.total > available && !last) continue;
        yield { needed, available, settings };
        break;
      }
    }
  }
}

function predictedFor({ needed, available, settings }: Fitting, question: Question, times: Measured): Candidate {
  const { users, promptTokens, answerTokens, tokens } = question;
  const { maxSequences, prefillChunk = CHUNKS[0]!, maxBatchTokens, kvCacheTokens = Infinity } = settings;
  const load: Load = {
    users,
    promptTokens,
    answerTokens,
    // No more run than the cache has room for.
    maxSequences: Math.max(1, Math.min(maxSequences, Math.floor(kvCacheTokens / tokens))),
    prefillChunk,
    maxBatchTokens,
    messageMs: times.messageMs,
    jitter: times.jitter,
  };
  const { tokensPerSecond, firstMs, wholeMs } = play(times.steps, load);
  const spread = (values: readonly number[]) => ({ p50: percentile(values, 50), p95: percentile(values, 95) });
  const answerMs = spread(wholeMs);
  const missing = lacking({ needed, available, settings }, question, answerMs.p95);
  return {
    settings,
    predicted: { tokensPerSecond, firstTokenMs: spread(firstMs), answerMs, memory: needed },
    p95Ms: answerMs.p95,
    hasRoom: needed.total <= available,
    fits: missing === null,
    missing,
  };
}

function lacking({ needed, available, settings }: Fitting, { tokens, p95Ms }: Question, p95: number): string | null {
  const { kvCacheType, head, prefillChunk, contextLength = tokens } = settings;
  if (needed.total > available)
    return `${needed.total - available} bytes of memory: the model needs ${needed.total} even with a ${kvCacheType} cache, the head ${head} and prompts read ${prefillChunk} tokens at a time, and there are ${available}`;
  if (contextLength < tokens)
    return `context: a prompt and its answer take ${tokens} positions, and contextLength is ${contextLength}`;
  if (p95Ms !== undefined && p95 > p95Ms)
    return `speed: 95 of 100 answers are whole after ${Math.round(p95)} ms, and ${p95Ms} ms were asked for`;
  return null;
}

interface Choice {
  about: Description;
  steps: Steps;
  measured: Recommendation["measured"];
  question: Question;
}

function chosen(candidates: readonly Candidate[], { about, steps, measured, question }: Choice): Recommendation {
  const inMemory = candidates.filter(({ hasRoom }) => hasRoom);
  const fitting = candidates.filter(({ fits }) => fits);
  const pool = fitting.length > 0 ? fitting : inMemory.length > 0 ? inMemory : candidates.slice(0, 1);
  const speed = (one: Candidate) => one.predicted.tokensPerSecond;
  const best = Math.max(...pool.map(speed));
  // Where nothing is fast enough, the nearest.
  const byTime = [...pool].sort((a, b) => a.p95Ms - b.p95Ms)[0]!;
  const found = fitting.length > 0 ? pool.find((one) => speed(one) >= ENOUGH * best)! : byTime;
  const { settings, predicted, fits, missing } = found;
  return {
    fits,
    missing,
    settings,
    predicted,
    considered: candidates.map((candidate) => ({
      maxSequences: candidate.settings.maxSequences,
      tokensPerSecond: speed(candidate),
      p95Ms: candidate.p95Ms,
      memoryBytes: candidate.predicted.memory.total,
      hasRoom: candidate.hasRoom,
      fits: candidate.fits,
    })),
    why: reasons(found, candidates, { about, steps, measured, question }),
    steps,
    measured,
  };
}

function reasons(
  { settings, fits }: Candidate,
  candidates: readonly Candidate[],
  { about, steps, measured, question }: Choice,
): string[] {
  const { users, p95Ms, kept } = question;
  const { maxSequences, kvCacheType, prefillChunk } = settings;
  const [{ bytesPerToken }] = about.heads as [Description["heads"][number]];
  const sizes = candidates.map((each) => each.settings.maxSequences).join(", ");
  const enough = fits
    ? `is the fewest with ${Math.round(100 * ENOUGH)} % of the best speed`
    : "comes nearest to what was asked for";
  const within = p95Ms === undefined ? "" : ` within ${p95Ms} ms`;
  const people = `${users} ${users === 1 ? "user" : "users"}`;
  return [
    `a step with one request takes ${steps.answers[0]!.ms.toFixed(2)} ms (${measured}) and reads ${(bytesPerToken / 1e6).toFixed(1)} MB of weights once for all requests in it`,
    `of ${sizes} requests at once for ${people}, ${maxSequences} ${enough}${within}`,
    `the context holds a prompt and its answer, and the cache ${maxSequences} of them in ${kvCacheType}, the most precise type that fits`,
    `prompts are read ${prefillChunk} tokens at a time: ${prefillChunk === CHUNKS[0] ? "more gain nothing, fewer read the weights more often" : "the most that fits before fewer bits are taken, or that is settled"}`,
    ...(kept.length > 0 ? [`settled before: ${kept.join(", ")}`] : []),
  ];
}
