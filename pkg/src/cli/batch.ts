import type { Answerer } from "../batch/answerer.ts";
import { exists, lockAll } from "../batch/disk.ts";
import { type Input, openInput } from "../batch/input.ts";
import type { Kept } from "../batch/journal.ts";
import { filesOf, journalOf, leftBy, nameParts, Output, type Places, partOf } from "../batch/output.ts";
import { begun, readRows } from "../batch/rows.ts";
import { type Plan, runBatch } from "../batch/run.ts";
import { checkTarget } from "../convert/write.ts";
import { batchFlags } from "../options/table/batch.ts";
import { EngineError } from "../types/errors.ts";
import type { Args } from "./args.ts";
import { type BatchFlags, batchLoad, openAll, openModel, placesOf, templateOf, tuned } from "./batch_models.ts";
import { BatchProgress } from "./batch_progress.ts";
import { submitted } from "./batch_queue.ts";
import { UsageError } from "./syntax.ts";
import type { Terminal } from "./terminal.ts";
import type { Command } from "./usage.ts";

export const batch: Command = {
  name: "batch",
  async run(args, terminal) {
    const flags = args.own<BatchFlags>("batchFlags");
    if (args.has("queue")) return submitted(args, flags, terminal);
    for (const option of ["folder", "priority", "detach", "attached"] as const) {
      if (args.has(option)) throw new UsageError(`--${option} belongs to --queue`, { option: `--${option}` });
    }
    const [input] = args.operands as [string];
    const places = await placesOf(flags, input);
    process.on("SIGTERM", () => terminal.interrupt());
    // Until it is held, what lies there may be of a run that is under way.
    const held = await lockAll(filesOf(places));
    try {
      await answered(args, flags, { ...places, alone: held.alone }, terminal);
    } finally {
      held.release();
    }
  },
};

/** Places, and whether it is known that no other run writes there. */
interface Held extends Places {
  alone: boolean;
}

/** Answers the lines that have no answer yet. */
async function answered(args: Args, flags: BatchFlags, places: Held, terminal: Terminal): Promise<void> {
  const template = templateOf(flags.template);
  const settings = batchLoad(args, flags);
  const kept = await leftBy(places);
  if (await isDone(places, kept, flags, terminal)) return;
  const input = await openInput(args.operands[0]!, terminal.signal);
  const rows = await begun(readRows(input, template));
  const { workers = batchFlags.workers.default, chunk = batchFlags.chunk.default } = flags;
  const load = await tuned(args, flags.batchModel!, settings, flags.defaultMaxTokens, terminal);
  const open = () => openModel(flags.batchModel!, load, flags.defaultMaxTokens, terminal);
  const answerers = await openAll(Array.from({ length: workers }, open));
  try {
    const output = await Output.open(places, answerers[0]!.identity, kept, true);
    // What waits is not computed twice after a crash; with more places than a chunk it would not wait.
    const ahead = load.maxSequences! <= chunk ? WAITING : 0;
    await work({ input, rows, answerers, chunk, ahead, output, places }, terminal);
  } finally {
    await rows.return?.();
    await Promise.all(answerers.map((one) => one.close()));
  }
}

/** Whether --resume finds nothing to do. Refuses what --resume or --force would have to allow. */
async function isDone(places: Held, kept: Kept | null, flags: BatchFlags, terminal: Terminal): Promise<boolean> {
  const { resume = false, force = false } = flags;
  const journal = journalOf(places);
  // A journal without answers is of a run that has just begun, beside what it is to replace.
  const begun = await exists(journal);
  if (kept && !resume) {
    const state = places.alone
      ? "ended early: --resume goes on with it"
      : "has not finished, and this system does not tell whether it still runs: once it has ended, --resume goes on with it";
    const message = `${journal} is of a run that ${state}; without that file a run begins anew`;
    throw new EngineError("InvalidArgument", message, { option: "--resume", file: journal });
  }
  if (kept?.whole) {
    await nameParts(places, kept.mark);
    await terminal.note(`${places.out} was whole, and has its name now`);
    return true;
  }
  if (resume && !begun && (await exists(places.out))) {
    await terminal.note(`${places.out} is whole: nothing is left to do`);
    if (terminal.json) await terminal.printJson({ out: places.out, nothingToDo: true });
    return true;
  }
  for (const file of [places.out, places.errors]) {
    // The run that goes on was let to replace the files whose parts it has begun.
    const own = resume && begun && (await exists(partOf(file)));
    if (!own) await checkTarget(file, force);
  }
  // Without a journal of this run, the part is of a run with another --out that ended early.
  if (places.always && !begun) await checkTarget(partOf(places.errors), force);
  return false;
}

/** Lines that wait in the queue of each engine. */
const WAITING = 8;

interface Work {
  input: Input;
  rows: Plan["rows"];
  answerers: readonly Answerer[];
  chunk: number;
  ahead: number;
  output: Output;
  places: Places;
}

async function work({ input, rows, answerers, chunk, ahead, output, places }: Work, terminal: Terminal): Promise<void> {
  const { signal } = terminal;
  try {
    const progress = new BatchProgress(terminal, input, output);
    const workers = answerers.map(({ lines }) => lines);
    await runBatch({ rows, workers, chunk, ahead, output, signal, onProgress: (read) => progress.show(read) });
    await output.finish();
    await progress.end(places);
  } catch (error) {
    await output.stop();
    const unwritten = error instanceof EngineError && error.code === "Unwritable";
    if (signal.aborted || unwritten)
      await terminal.note(`${output.done} lines are done; --resume goes on with the rest`);
    throw error;
  }
}
