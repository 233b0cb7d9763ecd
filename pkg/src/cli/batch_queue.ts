/** Batches on many machines: the commands around a queue. What they do is in the package @ternlight/batch. */

import { access } from "node:fs/promises";
import type { Answerer } from "../batch/answerer.ts";
import { openInput } from "../batch/input.ts";
import { begun, readRows } from "../batch/rows.ts";
import { batchFlags } from "../options/table/batch.ts";
import { EngineError } from "../types/errors.ts";
import type { LoadOptions } from "../types/index.ts";
import type { Args } from "./args.ts";
import { ofAttached } from "./batch_attached.ts";
import { type Collected, type Library, library, type Place } from "./batch_library.ts";
import { metricsOf, serveMetrics } from "./batch_metrics.ts";
import { type BatchFlags, batchLoad, openAll, openModel, placesOf, templateOf, tuned } from "./batch_models.ts";
import { QueueProgress } from "./batch_progress.ts";
import { plural, table } from "./format.ts";
import { UsageError } from "./syntax.ts";
import type { Terminal } from "./terminal.ts";
import type { Command } from "./usage.ts";

function placeOf(args: Args): Place {
  const { queue, folder } = args.own<Partial<Place>>("queuePlace");
  if (queue === undefined) throw new UsageError("--queue is missing", { option: "--queue" });
  // What it is instead may hold a password.
  if (!/^(rediss?|postgres(ql)?):\/\//i.test(queue)) {
    const expected = "redis://…, rediss://… or postgres://…";
    throw new UsageError(`--queue must be ${expected}`, { option: "--queue", expected });
  }
  if (folder !== undefined) return { queue, folder };
  if (/^postgres(ql)?:/i.test(queue)) return { queue };
  throw new UsageError("--folder is missing, which only a queue in PostgreSQL does without", { option: "--folder" });
}

interface QueueFlags {
  priority?: number;
  detach?: boolean;
  attached?: boolean;
}

/** What the answers depend on is known of a model that is loaded: logits are among it. */
async function loadedOnce(...how: Parameters<typeof openModel>): Promise<Answerer> {
  const model = await openModel(...how);
  await model.close();
  return model;
}

/** Gives the lines to workers, and collects their answers. */
export async function submitted(args: Args, flags: BatchFlags, terminal: Terminal): Promise<void> {
  const place = placeOf(args);
  const { priority, detach = false, attached = false } = args.own<QueueFlags>("queueFlags");
  for (const option of ["workers", "resume", "recommend"] as const) {
    if (args.has(option)) throw new UsageError(`--${option} does not go with --queue`, { option: `--${option}` });
  }
  const [input] = args.operands as [string];
  const { force = false } = flags;
  const places = detach ? null : await placesOf(flags, input);
  if (flags.batchModel === undefined) throw new UsageError("--model is missing", { option: "--model" });
  const template = templateOf(flags.template);
  const settings = batchLoad(args);
  const { check, submit, collect, ...others } = await library();
  process.on("SIGTERM", () => terminal.interrupt());
  const { signal } = terminal;
  const rows = await begun(readRows(await openInput(input, signal), template));
  const files = { out: places?.out ?? null, ...(flags.errors === undefined ? {} : { errors: flags.errors }) };
  await check({ ...place, ...files });
  const model = attached
    ? await ofAttached(args, flags.batchModel, place, others)
    : await loadedOnce(flags.batchModel, settings, flags.defaultMaxTokens, terminal);
  const job = await submit({
    ...place,
    ...files,
    force,
    rows,
    identity: model.identity,
    facts: model.facts,
    model: model.name,
    chunk: flags.chunk ?? batchFlags.chunk.default,
    ...(priority === undefined ? {} : { priority }),
  });
  await terminal.note(`job ${job.id}: ${job.lines} lines in ${job.chunks} chunks`);
  if (priority !== undefined && job.priority !== priority) {
    const own = job.priority === undefined ? "without a priority" : `with priority ${job.priority}`;
    await terminal.warn([`the job was given before, ${own}, and keeps that`]);
  }
  const progress = new QueueProgress(terminal, job.lines);
  const onProgress = (now: Collected) => progress.show(now);
  const onError = (error: Error) => void terminal.note(`warning: ${error.message}; trying again`);
  const onUnserved = (message: string) => void terminal.note(`warning: ${message}`);
  const how = { force, signal, onProgress, onError, onUnserved };
  const found = await collect({ ...place, job: job.id, ...files, ...how }).finally(() => progress.end());
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
    const { work, openMetrics } = await library();
    const loads: LoadOptions[] = [];
    for (const model of workerModels) loads.push(await tuned(args, model, settings, workerMaxTokens, terminal));
    const models = await openAll(
      workerModels.map((model, i) => openModel(model, loads[i]!, workerMaxTokens, terminal)),
    );
    const more = { ...(chunks ? { chunks } : {}), ...(lease ? { lease } : {}), ...telling(terminal) };
    try {
      const working = await Promise.all(models.map((model) => work({ ...place, model, ...more })));
      const works = working.map(({ counts }, i) => ({ name: models[i]!.name, counts }));
      const identities = models.map(({ identity }) => identity);
      const metrics = await serveMetrics(args, () => openMetrics(place, identities), works);
      await announced(models, metrics?.url, terminal);
      await stopped(terminal);
      await Promise.all(working.map((one) => one.close()));
      await metrics?.close();
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

async function announced(models: readonly Answerer[], metrics: string | undefined, terminal: Terminal): Promise<void> {
  const names = models.map(({ name, identity }) => ({ name, identity }));
  if (terminal.json) return terminal.printJson({ models: names, ...(metrics ? { metrics } : {}) });
  const where = metrics ? `; metrics at ${metrics}` : "";
  await terminal.print(`working on jobs of ${names.map(({ name }) => name).join(", ")}${where}\n`);
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
    const { openMetrics, status } = await library();
    if (args.has("metrics")) return metricsOf(() => openMetrics(place), terminal);
    const metrics = await serveMetrics(args, () => openMetrics(place));
    if (metrics) {
      await terminal.note(`metrics at ${metrics.url}`);
      await stopped(terminal);
      return metrics.close();
    }
    if (place.folder !== undefined)
      await access(place.folder).catch((cause) => {
        throw new EngineError(
          "NotFound",
          `--folder: ${cause.message}`,
          { option: "--folder", file: place.folder! },
          { cause },
        );
      });
    const jobs = await status(place, args.operands[0]);
    await terminal.warn(jobs.flatMap(({ unserved }) => unserved ?? []));
    if (terminal.json) return terminal.printJson({ jobs });
    const rows = jobs.map(({ id, state, model, lines, chunks, done, queue, workers }) => {
      const paused = queue.paused ? " (drained)" : "";
      return [
        id,
        state,
        model,
        `${lines}`,
        `${done} of ${chunks}`,
        `${queue.waiting}${paused}`,
        `${queue.active}`,
        `${workers}`,
      ];
    });
    const head = ["job", "state", "model", "lines", "chunks", "waiting", "active", "workers"];
    await terminal.print(`${table("lllrrrrr", [head, ...rows], "")}\n`);
  },
};

export const batchCancel: Command = {
  name: "batch cancel",
  async run(args, terminal) {
    const place = placeOf(args);
    const { id, state } = await (await library()).cancel(place, args.operands[0]!);
    if (terminal.json) return terminal.printJson({ job: id, state });
    const said =
      state === "done" ? "has all of its answers: nothing is cancelled" : "is cancelled; batch retry lets it go on";
    await terminal.print(`${id} ${said}\n`);
  },
};

export const batchRetry: Command = {
  name: "batch retry",
  async run(args, terminal) {
    const job = args.operands[0]!;
    const place = placeOf(args);
    const chunks = await (await library()).retry(place, job);
    if (terminal.json) return terminal.printJson({ job, chunks });
    await terminal.print(`${plural(chunks, "chunk")} of ${job} added to the queue\n`);
  },
};

export const batchDrain: Command = {
  name: "batch drain",
  async run(args, terminal) {
    const { off = false } = args.own<{ off?: boolean }>("drainFlags");
    const place = placeOf(args);
    const queues = await (await library()).drain(place, { off });
    if (terminal.json) return terminal.printJson({ queues, drained: !off });
    await terminal.print(`${plural(queues, "queue")}: workers ${off ? "take chunks again" : "take no more chunks"}\n`);
  },
};
