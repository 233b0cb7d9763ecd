/** Batches on many machines: the commands around a queue. What they do is in the package @ternlight/batch, which is installed beside. */

import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";
import type { Answerer } from "../batch/answerer.ts";
import { openInput } from "../batch/input.ts";
import { readRows } from "../batch/rows.ts";
import { batchFlags } from "../options/table/batch.ts";
import type { Answered, Line } from "../server/serving.ts";
import { EngineError } from "../types/errors.ts";
import type { Args } from "./args.ts";
import { type BatchFlags, batchLoad, openAll, openModel, placesOf, templateOf } from "./batch_models.ts";
import { table } from "./format.ts";
import { UsageError } from "./syntax.ts";
import type { Terminal } from "./terminal.ts";
import type { Command } from "./usage.ts";

interface Place {
  queue: string;
  folder: string;
}

interface Job {
  id: string;
  model: string;
  lines: number;
  chunks: number;
}

interface JobStatus extends Job {
  state: string;
  done: number;
  queue: { waiting: number; active: number; paused: boolean };
}

interface Collected {
  lines: number;
  failed: number;
  total: number;
}

/** As much of @ternlight/batch as is used. */
interface Library {
  submit(options: {
    folder: string;
    rows: AsyncIterable<readonly Line[]>;
    identity: string;
    model: string;
    chunk: number;
    priority?: number;
  }): Promise<Job>;
  collect(
    options: Place & {
      job: string;
      out: string | null;
      errors?: string;
      signal: AbortSignal;
      onProgress(progress: Collected): void;
    },
  ): Promise<Collected>;
  work(
    options: Place & {
      model: { identity: string; lines: { answer(line: Line): Promise<Answered> } };
      chunks?: number;
      lease?: number;
      onEvent(event: { job: string; chunk: number; line?: number; what: string; lines: number; ms: number }): void;
      onError(error: Error): void;
    },
  ): Promise<{ close(): Promise<void> }>;
  status(place: Place, job?: string): Promise<JobStatus[]>;
  cancel(place: Place, job: string): Promise<Job>;
  retry(place: Place, job: string): Promise<number>;
  drain(place: Place, options: { off: boolean }): Promise<number>;
}

const PACKAGE = "@ternlight/batch";

/** The package beside this one, or in the folder where the command runs. */
async function library(): Promise<Library> {
  const own = () => import(PACKAGE);
  const here = () =>
    import(pathToFileURL(createRequire(path.join(process.cwd(), "package.json")).resolve(PACKAGE)).href);
  try {
    return await own().catch(here);
  } catch (cause) {
    const message = `--queue needs the package ${PACKAGE}: npm install ${PACKAGE}`;
    throw new EngineError("UnsupportedOption", message, { option: "--queue" }, { cause });
  }
}

function placeOf(args: Args): Place {
  const { queue, folder } = args.own<Partial<Place>>("queuePlace");
  if (queue === undefined) throw new UsageError("--queue is missing", { option: "--queue" });
  if (folder === undefined) throw new UsageError("--folder is missing", { option: "--folder" });
  return { queue, folder };
}

/** Gives the lines to workers, and collects their answers. */
export async function submitted(args: Args, flags: BatchFlags, terminal: Terminal): Promise<void> {
  const place = placeOf(args);
  const { priority, detach = false } = args.own<{ priority?: number; detach?: boolean }>("queueFlags");
  for (const option of ["workers", "resume"] as const) {
    if (args.has(option)) throw new UsageError(`--${option} does not go with --queue`, { option: `--${option}` });
  }
  const [input] = args.operands as [string];
  const places = detach ? null : placesOf(flags, input);
  if (flags.batchModel === undefined) throw new UsageError("--model is missing", { option: "--model" });
  const template = templateOf(flags.template);
  const settings = batchLoad(args);
  const { submit, collect } = await library();
  process.on("SIGTERM", () => terminal.interrupt());
  // What the answers depend on is known of a model that is loaded.
  const model = await openModel(flags.batchModel, settings, flags.defaultMaxTokens, terminal);
  await model.close();
  const { signal } = terminal;
  const job = await submit({
    folder: place.folder,
    rows: readRows(await openInput(input, signal), template),
    identity: model.identity,
    model: model.name,
    chunk: flags.chunk ?? batchFlags.chunk.default,
    ...(priority === undefined ? {} : { priority }),
  });
  await terminal.note(`job ${job.id}: ${job.lines} lines in ${job.chunks} chunks`);
  const onProgress = ({ lines, total, failed }: Collected) =>
    terminal.passing(`${lines} of ${total} lines${failed > 0 ? ` · ${failed} errors` : ""}`);
  const errors = flags.errors === undefined ? {} : { errors: flags.errors };
  const found = await collect({ ...place, job: job.id, out: places?.out ?? null, ...errors, signal, onProgress });
  if (terminal.json) return terminal.printJson({ job: job.id, ...found, ...(places ? { out: places.out } : {}) });
  if (places) await terminal.note(`${found.lines} lines, ${found.failed} errors: ${places.out}`);
}

interface WorkerFlags {
  workerModels?: string[];
  chunksAtOnce?: number;
  lease?: number;
  workerMaxTokens?: number;
}

export const batchWorker: Command = {
  name: "batch worker",
  async run(args, terminal) {
    const place = placeOf(args);
    const flags = args.own<WorkerFlags>("workerFlags");
    const { workerModels = [], chunksAtOnce: chunks, lease, workerMaxTokens } = flags;
    if (workerModels.length === 0) throw new UsageError("--model is missing", { option: "--model" });
    const settings = batchLoad(args, { workers: workerModels.length });
    const { work } = await library();
    const models = await openAll(workerModels.map((model) => openModel(model, settings, workerMaxTokens, terminal)));
    const more = { ...(chunks ? { chunks } : {}), ...(lease ? { lease } : {}), ...telling(terminal) };
    try {
      const working = await Promise.all(models.map((model) => work({ ...place, model, ...more })));
      await announced(models, terminal);
      await stopped(terminal);
      await Promise.all(working.map((one) => one.close()));
    } finally {
      await Promise.all(models.map((model) => model.close()));
    }
  },
};

/** Tells of each chunk and of what goes wrong, with --json as lines of JSON. */
const telling = (terminal: Terminal): Pick<Parameters<Library["work"]>[0], "onEvent" | "onError"> => ({
  onEvent(event) {
    const { job, chunk, line, what, lines, ms } = event;
    const place = `${job.slice(0, 8)} chunk ${chunk}${line === undefined ? "" : `, line ${line}`}`;
    const text = `${place}: ${what}, ${lines} lines in ${(ms / 1000).toFixed(2)} s`;
    void terminal.note(terminal.json ? JSON.stringify(event) : text);
  },
  onError: (error) => void terminal.note(`warning: ${error.message}`),
});

async function announced(models: readonly Answerer[], terminal: Terminal): Promise<void> {
  const names = models.map(({ name, identity }) => ({ name, identity }));
  if (terminal.json) return terminal.printJson({ models: names });
  await terminal.print(`working on jobs of ${names.map(({ name }) => name).join(", ")}\n`);
}

/** Resolves at Ctrl-C or SIGTERM; what is under way then is finished, and a second one ends at once. */
async function stopped(terminal: Terminal): Promise<void> {
  let stop = () => {};
  const asked = new Promise<void>((resolve) => {
    stop = resolve;
  });
  let terminated = false;
  process.on("SIGTERM", () => {
    if (terminated) process.exit(143);
    terminated = true;
    stop();
  });
  await terminal.interruptible(() => asked, stop);
}

export const batchStatus: Command = {
  name: "batch status",
  async run(args, terminal) {
    const place = placeOf(args);
    const jobs = await (await library()).status(place, args.operands[0]);
    if (terminal.json) return terminal.printJson({ jobs });
    const rows = jobs.map(({ id, state, model, lines, chunks, done, queue }) => {
      const paused = queue.paused ? " (drained)" : "";
      return [id, state, model, `${lines}`, `${done} of ${chunks}`, `${queue.waiting}${paused}`, `${queue.active}`];
    });
    const head = ["job", "state", "model", "lines", "chunks", "waiting", "active"];
    await terminal.print(`${table("lllrrrr", [head, ...rows], "")}\n`);
  },
};

export const batchCancel: Command = {
  name: "batch cancel",
  async run(args, terminal) {
    const { id } = await (await library()).cancel(placeOf(args), args.operands[0]!);
    if (terminal.json) return terminal.printJson({ job: id, state: "cancelled" });
    await terminal.print(`${id} is cancelled; batch retry lets it go on\n`);
  },
};

export const batchRetry: Command = {
  name: "batch retry",
  async run(args, terminal) {
    const job = args.operands[0]!;
    const chunks = await (await library()).retry(placeOf(args), job);
    if (terminal.json) return terminal.printJson({ job, chunks });
    await terminal.print(`${chunks} chunks of ${job} are in the queue\n`);
  },
};

export const batchDrain: Command = {
  name: "batch drain",
  async run(args, terminal) {
    const { off = false } = args.own<{ off?: boolean }>("drainFlags");
    const queues = await (await library()).drain(placeOf(args), { off });
    if (terminal.json) return terminal.printJson({ queues, drained: !off });
    await terminal.print(`${queues} queues: workers ${off ? "take chunks again" : "take no more chunks"}\n`);
  },
};
