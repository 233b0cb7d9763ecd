/** Runs the command that the arguments name, and returns its exit status. */

import { writeSync } from "node:fs";
import { usageLine } from "../options/commands.ts";
import { EngineError } from "../types/errors.ts";
import { canRun, deviceReport, recommend } from "./advise.ts";
import { Args, isOn } from "./args.ts";
import { batch } from "./batch.ts";
import { batchCancel, batchDrain, batchRetry, batchStatus, batchWorker } from "./batch_queue.ts";
import { bench, benchCheck, benchDiff } from "./bench.ts";
import { cacheDelete, cacheList } from "./cache.ts";
import { calibrate } from "./calibrate.ts";
import { chat } from "./chat.ts";
import { convert } from "./convert.ts";
import { doctor } from "./doctor.ts";
import { health } from "./health.ts";
import { hintOf } from "./hints.ts";
import { inspect } from "./inspect.ts";
import { loadtest } from "./loadtest.ts";
import { logits } from "./logits.ts";
import { models } from "./models.ts";
import { perplexity } from "./perplexity.ts";
import { prune } from "./prune.ts";
import { quality } from "./quality.ts";
import { run } from "./run.ts";
import { serve } from "./serve.ts";
import { slice } from "./slice.ts";
import { nearest, UsageError } from "./syntax.ts";
import { Terminal } from "./terminal.ts";
import { tokenize } from "./tokenize.ts";
import { type Command, help, overview } from "./usage.ts";
import { version } from "./version.ts";

const measuring: readonly Command[] = [bench, benchDiff, benchCheck, loadtest];
const smaller: readonly Command[] = [quality, calibrate, slice, prune];
const about: readonly Command[] = [logits, tokenize, perplexity, inspect, convert, ...smaller];
const operating: readonly Command[] = [recommend, canRun, deviceReport, health];
const loading: readonly Command[] = [run, ...about, ...operating, ...measuring, serve, batch, chat];
const queues: readonly Command[] = [batchWorker, batchStatus, batchCancel, batchRetry, batchDrain];
/** They have files to clear away, so that SIGTERM ends them as Ctrl-C does. */
const writing: readonly Command[] = [inspect, convert, ...smaller];
const commands: readonly Command[] = [...loading, ...queues, models, cacheList, cacheDelete, doctor];

const DONE = 0;
const FAILED = 1;
const WRONG_USAGE = 2;
/** The exit statuses of programs that signals ended. */
const ENDED = { SIGINT: 130, SIGTERM: 143, SIGHUP: 129 } as const;

export async function cli(argv: readonly string[]): Promise<number> {
  const terminal = new Terminal({ out: process.stdout, err: process.stderr, json: isOn("json", argv), lost });
  endedBy("SIGINT", terminal);
  // Bun tells the end of some writes alone, Node first of all the stream.
  process.stdout.on("error", lost);
  // Notes are not the result, so the work continues when nobody reads them any more.
  process.stderr.on("error", () => {});

  // `bench diff` is a command of its own, so the longer name is tried first.
  const named = (words: number) => commands.find(({ name }) => name === argv.slice(0, words).join(" "));
  const command = named(2) ?? named(1);
  if (command && writing.includes(command))
    for (const signal of ["SIGTERM", "SIGHUP"] as const) endedBy(signal, terminal);
  try {
    if (command) await start(command, argv.slice(command.name.split(" ").length), terminal);
    else await withoutCommand(argv, terminal);
    return terminal.interrupted ?? terminal.status;
  } catch (error) {
    const { code, message, detail } = asEngineError(error);
    // An error after the result goes to stderr alone, because stdout holds one object.
    if (terminal.json && !terminal.printed) await terminal.printJson({ error: { code, message, detail } });
    if (error instanceof UsageError) {
      const usage = command ? usageLine(command.name) : overview().trimEnd();
      await terminal.note(`ternlight: ${message}\n${usage}`);
      return WRONG_USAGE;
    }
    await terminal.note(terminal.interrupted ? "ternlight: interrupted" : `ternlight: ${code}: ${message}`);
    const hint = error instanceof EngineError && !terminal.interrupted ? hintOf(error, argv) : null;
    if (hint) await terminal.note(`hint: ${hint}`);
    if (isOn("debug", argv)) await terminal.note(stack(error));
    return terminal.interrupted ?? FAILED;
  }
}

/** The first such signal lets the command end, a second one ends it at once. */
function endedBy(signal: keyof typeof ENDED, terminal: Terminal): void {
  const status = ENDED[signal];
  process.on(signal, () => (terminal.interrupted === null ? terminal.interrupt(status) : process.exit(status)));
}

/** Ends the program. A reader that closes the pipe (`| head`) has all that it wants. */
function lost(error: NodeJS.ErrnoException): never {
  if (error.code === "EPIPE") process.exit(DONE);
  writeSync(process.stderr.fd, `ternlight: standard output: ${error.message}\n`);
  process.exit(FAILED);
}

async function start(command: Command, argv: readonly string[], terminal: Terminal): Promise<void> {
  const args = new Args(command.name, argv, process.env);
  // A flag may have ruled out the variable.
  terminal.json &&= args.has("json");
  if (args.has("help")) await terminal.print(help(command.name));
  else if (args.has("version")) await terminal.print(`${version()}\n`);
  else await command.run(args, terminal);
}

async function withoutCommand([first, second]: readonly string[], terminal: Terminal): Promise<void> {
  if (first === "--help" || first === "-h") return terminal.print(overview());
  if (first === "--version" || first === "-v") return terminal.print(`${version()}\n`);
  if (first === undefined) throw new UsageError("a command is missing");
  const names = commands.map(({ name }) => name);
  const within = names.filter((name) => name.startsWith(`${first} `));
  const asked = second?.startsWith("-") ? undefined : second;
  if (within.length > 0 && asked === undefined) return terminal.print(overview(first));
  const what = first.startsWith("-") ? "the command comes first, not" : "there is no command";
  const found = within.length > 0 ? `${first} ${asked}` : first;
  const known = nearest(found, within.length > 0 ? within : names);
  throw new UsageError(`${what} ${found}; the nearest is ${known}`, { found, expected: known });
}

function asEngineError(error: unknown): EngineError {
  if (error instanceof EngineError) return error;
  return new EngineError("Internal", error instanceof Error ? error.message : String(error));
}

function stack(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const cause = error.cause === undefined ? "" : `\ncaused by ${stack(error.cause)}`;
  return `${error.stack ?? error}${cause}`;
}
