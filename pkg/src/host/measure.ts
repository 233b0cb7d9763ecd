/** What `bench` asks of an engine and of its machine. What these numbers mean is worked out elsewhere. */

import type { Phase, Verbs } from "../rpc/protocol.ts";
import type { EngineEvent, EngineWork } from "./events.ts";
import { choose, type Host, type Loaded, Runtime } from "./load.ts";
import { SLICE } from "./loop.ts";
import type { Platform } from "./platform.ts";

/** Conversations side by side: first what lies behind them, then their prompts, then their answers. */
export async function measure(
  { engine, memory, glue }: Loaded,
  { past, prompts, decode, profile }: Verbs["measure"]["args"],
  { turn }: Platform,
  signal: AbortSignal,
): Promise<Verbs["measure"]["result"]> {
  const sessions = prompts.map(() => engine.open());
  const phase = async (ids: readonly number[][], work: EngineWork): Promise<Phase> => {
    for (const [i, session] of sessions.entries()) engine.submit(session, Uint32Array.from(ids[i] ?? []), work);
    const steps: number[] = [];
    const before = engine.tally();
    const held = memory.buffer.byteLength;
    engine.profile(profile);
    const start = performance.now();
    let turned = start;
    for (let now = start; engine.busy(); ) {
      const begun = now;
      for (const event of engine.step(Infinity) as EngineEvent[]) if (event.type === "failed") throw event.error;
      now = performance.now();
      steps.push(now - begun);
      if (now - turned < SLICE) continue;
      await turn();
      signal.throwIfAborted();
      turned = now = performance.now();
    }
    const ms = performance.now() - start;
    const noted = [...engine.profile(false)];
    const [bytes, macs] = engine.tally().map((now, i) => now - before[i]!) as unknown as [number, number];
    const grownBytes = memory.buffer.byteLength - held;
    return { ms, steps, weightBytes: bytes, weightMacs: macs, grownBytes, profile: noted };
  };
  try {
    if (past.length > 0) await phase(past, { type: "logits", all: false });
    // The first token comes with the prompt, and `decode` more after it.
    const prefill = await phase(prompts, greedy(1));
    const answers = await phase([], greedy(decode));
    return {
      prefill,
      decode: answers,
      memoryBytes: memory.buffer.byteLength,
      operations: glue.operations().split(" "),
    };
  } finally {
    for (const session of sessions) engine.close(session);
  }
}

/** What each matrix reads and writes, in a prompt's step and in that of the token after it. */
export function trace({ engine }: Loaded, { ids }: Verbs["trace"]["args"]): Verbs["trace"]["result"] {
  const session = engine.open();
  try {
    engine.submit(session, Uint32Array.from(ids), greedy(2));
    return { prefill: [...engine.trace()], decode: [...engine.trace()] };
  } finally {
    engine.close(session);
  }
}

const greedy = (maxTokens: number): EngineWork => ({
  type: "generate",
  maxTokens,
  end: [],
  full: 0,
});

/** Long enough for clocks that some pages get. */
const LEAST_MS = 20;

/** How much this machine reads and multiplies, with the build and the threads that a model would get. */
export async function roofline(
  { settings, bytes, streams, repeat }: Verbs["roofline"]["args"],
  host: Host,
): Promise<Verbs["roofline"]["result"]> {
  const { platform, signal } = host;
  const { choice, kernel } = choose(settings, platform);
  const { glue } = await (await Runtime.start(choice, host)).planner();
  if (choice.threads > 1) await glue.initThreadPool?.(choice.threads - 1);
  const size = Math.floor(Math.min(bytes, (platform.freeMemory() ?? Infinity) / 4) / 64) * 64;
  glue.dots(kernel);
  const roof = new glue.Roofline(choice.threads, size);
  const timed = (work: () => number) => {
    const start = performance.now();
    const done = work();
    return [performance.now() - start, done] as const;
  };
  let rounds = 1 << 10;
  while (timed(() => roof.multiply(rounds))[0] < LEAST_MS) rounds *= 2;
  const read: number[][] = streams.map(() => []);
  const multiply: number[] = [];
  for (let run = 0; run < repeat; run++) {
    for (const [i, count] of streams.entries()) read[i]!.push(size / timed(() => roof.read(count))[0] / 1e6);
    const [ms, products] = timed(() => roof.multiply(rounds));
    multiply.push(products / ms / 1e6);
    await platform.turn();
    signal.throwIfAborted();
  }
  return { bytes: size, threads: choice.threads, flavour: choice.flavour, read, multiply };
}
