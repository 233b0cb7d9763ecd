/** Plays a load against the times of steps, by the rules of the engine's scheduler (`src/engine/scheduler.rs`). */

/** Milliseconds of a step, for some numbers of rows in rising order; between them it is a straight line. */
export type Steps = readonly { rows: number; ms: number }[];

export interface Load {
  users: number;
  promptTokens: number;
  answerTokens: number;
  maxSequences: number;
  prefillChunk: number;
}

export interface Played {
  tokensPerSecond: number;
  firstMs: number[];
  wholeMs: number[];
}

/** Requests that are played: a multiple of the users, at least so many. */
const LEAST = 60;
/** A prompt beside running answers gets this part of a chunk, but a block at least. */
const [SHARE, BLOCK] = [8, 32];

export function stepMs(steps: Steps, rows: number): number {
  const after = steps.findIndex((step) => step.rows >= rows);
  if (after === 0 || steps.length === 1) return steps[0]!.ms;
  const [a, b] = after < 0 ? steps.slice(-2) : steps.slice(after - 1, after + 1);
  return a!.ms + ((b!.ms - a!.ms) * (rows - a!.rows)) / (b!.rows - a!.rows);
}

interface Request {
  asked: number;
  prompt: number;
  answer: number;
  first: number;
}

export function play(steps: Steps, load: Load): Played {
  const { users, promptTokens, answerTokens, maxSequences, prefillChunk } = load;
  const fresh = (asked: number): Request => ({ asked, prompt: promptTokens, answer: answerTokens, first: 0 });
  const waiting = Array.from({ length: users }, () => fresh(0));
  let running: Request[] = [];
  const [firstMs, wholeMs]: [number[], number[]] = [[], []];
  const wanted = users * Math.ceil(Math.max(LEAST, 4 * users) / users);
  let now = 0;
  while (wholeMs.length < wanted) {
    while (running.length < maxSequences && waiting.length > 0) running.push(waiting.shift()!);
    const decoding = running.filter(({ prompt }) => prompt === 0);
    const chunk = decoding.length === 0 ? prefillChunk : Math.min(prefillChunk, Math.max(BLOCK, prefillChunk / SHARE));
    let left = Math.floor(chunk);
    const read: Request[] = [];
    for (const one of running) {
      if (one.prompt === 0 || left === 0) continue;
      const share = Math.min(left, one.prompt);
      left -= share;
      one.prompt -= share;
      if (one.prompt === 0) read.push(one);
    }
    now += stepMs(steps, decoding.length + Math.floor(chunk) - left);
    for (const one of [...decoding, ...read]) {
      one.answer--;
      if (one.first === 0) {
        one.first = now;
        firstMs.push(now - one.asked);
      }
      if (one.answer > 0) continue;
      wholeMs.push(now - one.asked);
      waiting.push(fresh(now));
    }
    running = running.filter(({ answer }) => answer > 0);
  }
  return { tokensPerSecond: (1000 * wholeMs.length * answerTokens) / now, firstMs, wholeMs };
}

export function percentile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.ceil(share * sorted.length) - 1)] ?? 0;
}
