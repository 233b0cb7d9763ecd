/** Measurements of the engine and of its machine, as plain numbers. The benchmark works out what they mean. */

import type { Phase, Verbs } from "../../rpc/protocol.ts";
import type { CallContext, Handler } from "../call.ts";
import { heldBytes } from "../context.ts";
import type { EngineEvent, EngineWork } from "../events.ts";
import { SLICE_MS } from "../loop.ts";
import { choose, Runtime } from "../runtime.ts";
import type { HostState } from "../state.ts";

/** Times conversations side by side, alone on the engine: first the tokens before the prompts, then the prompts, then the answers. */
export const measure: Handler<"measure"> = (state, args, context) =>
  state.model.loop.alone(context.signal, () => measureAlone(state, args, context));

async function measureAlone(
  state: HostState,
  { past, prompts, decode, profile }: Verbs["measure"]["args"],
  context: CallContext<"measure">,
): Promise<Verbs["measure"]["result"]> {
  const { engine, parts } = state.model;
  const sessions = prompts.map(() => engine.open());
  const phase = (ids: readonly number[][], work: EngineWork) => {
    const own = sessions.map((session, i) => engine.submit(session, Uint32Array.from(ids[i] ?? []), work));
    return timePhase(state, own, profile, context);
  };
  try {
    if (past.length > 0) await phase(past, { type: "logits", all: false });
    // The prompt's last step gives the first token; `decode` more follow it.
    const prefill = await phase(prompts, greedy(1));
    context.send(null);
    const answers = await phase([], greedy(decode));
    return {
      prefill,
      decode: answers,
      memoryBytes: heldBytes(parts),
      operations: parts[0].glue.operations().split(" "),
    };
  } finally {
    for (const session of sessions) engine.close(session);
  }
}

/** Runs all that is submitted, and times each step. @param own the requests that are measured: others may have come meanwhile */
async function timePhase(
  { model: { engine, parts, loop }, platform }: HostState,
  own: readonly number[],
  profile: boolean | "each",
  { signal }: CallContext<"measure">,
): Promise<Phase> {
  const steps: number[] = [];
  const noted: number[] = [];
  const before = engine.tally();
  const held = heldBytes(parts);
  // A step whose time is up when it begins ends after one operation.
  const each = profile === "each";
  engine.profile(!!profile);
  const start = performance.now();
  let turned = start;
  for (let now = start; engine.busy(); ) {
    const begun = now;
    const events = engine.step(each ? 0 : Infinity) as EngineEvent[];
    loop.hear(events);
    for (const event of events) if (event.type === "failed" && own.includes(event.request)) throw event.error;
    now = performance.now();
    steps.push(now - begun);
    if (each) noted.push(...engine.profile(true));
    if (now - turned < SLICE_MS) continue;
    await platform.turn();
    signal.throwIfAborted();
    turned = now = performance.now();
  }
  const ms = performance.now() - start;
  noted.push(...engine.profile(false));
  const [bytes, macs] = engine.tally().map((now, i) => now - before[i]!) as unknown as [number, number];
  const grownBytes = heldBytes(parts) - held;
  return { ms, steps, weightBytes: bytes, weightMacs: macs, grownBytes, profile: noted };
}

/** What each matrix reads and writes, in a prompt's step and in that of the token after it. */
export const trace: Handler<"trace"> = ({ model: { engine } }, { ids, counted }) => {
  const session = engine.open();
  try {
    engine.submit(session, Uint32Array.from(ids), greedy(2));
    return { prefill: [...engine.trace(0, counted)], decode: [...engine.trace(0, false)] };
  } finally {
    engine.close(session);
  }
};

/** How long each matrix takes alone, and its bytes. */
export const times: Handler<"times"> = ({ model: { engine } }, { streams }) => [...engine.trace(streams, false)];

const greedy = (maxTokens: number): EngineWork => ({
  type: "generate",
  maxTokens,
  end: [],
  full: 0,
});

/** A measurement takes at least so long: some pages get coarse clocks. */
const MIN_MS = 20;

/** How much this machine reads and multiplies, with the build and the threads that a model would get. */
export const roofline: Handler<"roofline"> = async (state, { settings, bytes, streams, repeat }, { signal }) => {
  const { platform, onFatal, threads } = state;
  const choice = choose(settings, platform);
  const { glue } = (await Runtime.start(choice, { platform, signal, onFatal, threads })).planner();
  if (choice.threads > 1) await glue.initThreadPool?.(choice.threads - 1);
  const size = Math.floor(Math.min(bytes, (platform.freeMemory() ?? Infinity) / 4) / 64) * 64;
  glue.dotProduct(settings.dotProduct ?? "auto");
  const roof = new glue.Roofline(choice.threads, size);
  const timed = (work: () => number) => {
    const start = performance.now();
    const done = work();
    return [performance.now() - start, done] as const;
  };
  let rounds = 1 << 10;
  while (timed(() => roof.multiply(rounds))[0] < MIN_MS) rounds *= 2;
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
};
