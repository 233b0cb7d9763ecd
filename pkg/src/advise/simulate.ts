/** Plays a load against the times of steps, by the rules of the engine's scheduler (`src/engine/scheduler.rs`). */

/** Milliseconds of a step, for some numbers of rows in rising order; between them it is a straight line. */
export type Curve = { rows: number; ms: number }[];

export interface Steps {
  /** Of answers alone: each row gives a token. */
  answers: Curve;
  /** Of prompts alone. */
  prompts: Curve;
  /** What each answer adds to a step that reads a prompt. */
  besideMs: number;
}

export interface Load {
  users: number;
  promptTokens: number;
  answerTokens: number;
  maxSequences: number;
  prefillChunk: number;
  /** The most rows of a step. @default what the chunk and the answers take */
  maxBatchTokens?: number | undefined;
  /** Milliseconds that a message takes between a caller and the engine's worker. @default 0 */
  messageMs?: number;
  /** How many times its median each measurement of about `JITTER_MS` took: played time gets them by chance. @default always the median */
  jitter?: readonly number[];
}

/** Milliseconds of work for which a machine is as fast, or as slow, as one measurement found it. */
export const JITTER_MS = 30;

export interface Played {
  tokensPerSecond: number;
  firstMs: number[];
  wholeMs: number[];
}

/** Requests that are played: a multiple of the users, at least so many, and so many of each: all begin at once, which is rare later. */
const [LEAST, EACH] = [200, 25];
/** A prompt beside running answers gets this part of a chunk, but a block at least. */
const [SHARE, BLOCK] = [8, 32];
export const shareOf = (prefillChunk: number) =>
  Math.min(prefillChunk, Math.max(BLOCK, Math.floor(prefillChunk / SHARE)));
/** The engine's worker reads its messages, and sends what has gathered, after so many milliseconds or steps: see `host/loop.ts`. */
const [SLICE_MS, SLICE_STEPS] = [8, 64];

export function msAt(curve: Curve, rows: number): number {
  const after = curve.findIndex((step) => step.rows >= rows);
  if (after === 0 || curve.length === 1) return curve[0]!.ms;
  const [a, b] = after < 0 ? curve.slice(-2) : curve.slice(after - 1, after + 1);
  return a!.ms + ((b!.ms - a!.ms) * (rows - a!.rows)) / (b!.rows - a!.rows);
}

/** Milliseconds of a step with so many answers and tokens of prompts. */
export function stepMs({ answers, prompts, besideMs }: Steps, decoding: number, read: number): number {
  return read === 0 ? msAt(answers, decoding) : msAt(prompts, read) + besideMs * decoding;
}

interface Request {
  asked: number;
  prompt: number;
  answer: number;
  first: number;
}

/**
 * Users who ask again as soon as they have their answer. A worker computes in slices of some steps: an answer is heard of when its slice
 * ends, and the next question is read when the slice after it has ended, unless there is nothing else to do.
 */
export function play(steps: Steps, load: Load): Played {
  const { users, promptTokens, answerTokens, maxSequences, messageMs = 0, jitter = [] } = load;
  const slowness = drawn(jitter);
  const fresh = (asked: number): Request => ({ asked, prompt: promptTokens, answer: answerTokens, first: 0 });
  const waiting: Request[] = [];
  let posted = Array.from({ length: users }, () => fresh(0));
  let running: Request[] = [];
  const [firstMs, wholeMs]: [number[], number[]] = [[], []];
  const wanted = users * Math.max(EACH, Math.ceil(LEAST / users));
  let now = 0;
  const slice = () => {
    const begun = now;
    const heard: Request[] = [];
    for (let step = 0; step < SLICE_STEPS && now - begun < SLICE_MS; step++) {
      while (running.length < maxSequences && waiting.length > 0) running.push(waiting.shift()!);
      if (running.length === 0) break;
      const { decoding, read, advanced } = batchOf(running, load);
      now += stepMs(steps, decoding, read) * slowness(now);
      for (const one of advanced) one.answer--;
      heard.push(...advanced);
      running = running.filter(({ answer }) => answer > 0);
    }
    return new Set(heard);
  };
  while (wholeMs.length < wanted) {
    // Where nothing runs, the worker waits for a message.
    if (running.length === 0 && waiting.length === 0)
      now = Math.max(now, Math.min(...posted.map(({ asked }) => asked + messageMs)));
    waiting.push(...posted.filter(({ asked }) => asked + messageMs <= now));
    posted = posted.filter(({ asked }) => asked + messageMs > now);
    for (const one of slice()) {
      one.first ||= now;
      if (one.answer > 0) continue;
      // Both times of one answer count together: what has begun when the play ends is in neither.
      firstMs.push(one.first + messageMs - one.asked);
      wholeMs.push(now + messageMs - one.asked);
      posted.push(fresh(now + messageMs));
    }
  }
  return { tokensPerSecond: (1000 * wholeMs.length * answerTokens) / now, firstMs, wholeMs };
}

/** Of these factors, one for each `JITTER_MS` of work, the same in every play: a generator of Lehmer's chooses. */
function drawn(jitter: readonly number[]): (now: number) => number {
  let [seed, until, factor] = [1, 0, 1];
  return (now) => {
    if (now < until || jitter.length === 0) return factor;
    seed = (48271 * seed) % 2147483647;
    factor = jitter[seed % jitter.length]!;
    until = now + JITTER_MS * factor;
    return factor;
  };
}

interface Batch {
  /** Answers, and tokens of prompts. */
  decoding: number;
  read: number;
  /** Requests that get a token. */
  advanced: Request[];
}

/** The next step. Half of what prompts get goes to the oldest, the rest to the shortest. */
function batchOf(running: readonly Request[], { prefillChunk, maxBatchTokens = Infinity }: Load): Batch {
  const decoding = running.filter(({ prompt }) => prompt === 0);
  const prompts = running.filter(({ prompt }) => prompt > 0);
  // A batch that has no room for all keeps a row for prompts.
  const answers = decoding.slice(0, Math.max(1, prompts.length > 0 ? maxBatchTokens - 1 : maxBatchTokens));
  const share = answers.length === 0 ? prefillChunk : shareOf(prefillChunk);
  const chunk = Math.min(share, maxBatchTokens - answers.length);
  let left = chunk;
  const read = (one: Request, most: number) => {
    const share = Math.min(most, left, one.prompt);
    left -= share;
    one.prompt -= share;
  };
  const bucket = ({ prompt }: Request) => Math.floor(Math.log2(Math.max(1, prompt)));
  const line = [...prompts].sort((a, b) => bucket(a) - bucket(b));
  const [oldest] = prompts;
  if (oldest) read(oldest, prompts.length === 1 ? left : Math.ceil(left / 2));
  for (const one of line) read(one, left);
  const ended = prompts.filter(({ prompt }) => prompt === 0);
  return { decoding: answers.length, read: chunk - left, advanced: [...answers, ...ended] };
}
