/** What a command expects, and the error of whoever calls it otherwise. */

import { EngineError, type ErrorDetail } from "../types/errors.ts";
import type { Args } from "./args.ts";
import { common, type Flag, type FlagName, flag, spelled } from "./flags.ts";
import type { Terminal } from "./terminal.ts";

export interface Command {
  name: string;
  summary: string;
  operands: readonly string[];
  /** Operands that may follow. */
  optional?: readonly string[];
  /** The part of the usage line that says which flags there must be. */
  needs?: string;
  /** Its own; the common ones belong to all. */
  flags: readonly FlagName[];
  /** What a flag means here, where it is not what it means elsewhere. */
  meanings?: Partial<Record<FlagName, Flag>>;
  run(args: Args, terminal: Terminal): Promise<void>;
}

export const meaning = (command: Command, name: FlagName): Flag => command.meanings?.[name] ?? flag(name);

/** Ends the program with status 2 and the usage line. */
export class UsageError extends EngineError {
  constructor(message: string, detail: ErrorDetail = {}) {
    super("InvalidArgument", message, detail);
  }
}

export const usageLine = ({ name, operands, needs }: Command): string =>
  ["usage: ternlight", name, ...operands, ...(needs ? [needs] : []), "[options]"].join(" ");

const operandHelp: Record<string, string> = {
  MODEL: "a file, a folder or a URL; ternlight-demo is the model that ships",
  URL: "a model's address",
  FILE: "a text in UTF-8",
  "OUT.gguf": "the file to write",
  "A.json": "what bench --json printed before",
  "B.json": "and after",
};

export function help(command: Command): string {
  const flagRows = (names: readonly FlagName[]) =>
    names.map((name): Row => {
      const flag = meaning(command, name);
      return [spelled(name, flag), flag.help];
    });
  const operands = [...command.operands, ...(command.optional ?? [])].map(
    (name): Row => [name, operandHelp[name] ?? ""],
  );
  const own = [...operands, ...flagRows(command.flags)];
  const shared = flagRows(common);
  const width = Math.max(...[...own, ...shared].map(([left]) => left.length));
  const list = (rows: Row[]) => rows.map(([left, right]) => `  ${left.padEnd(width)}  ${right}\n`).join("");
  return `${usageLine(command)}\n\n${command.summary}\n\n${list(own)}\nWith every command:\n${list(shared)}`;
}

type Row = [string, string];

export function overview(commands: readonly Command[]): string {
  const width = Math.max(...commands.map(({ name }) => name.length));
  const list = commands.map(({ name, summary }) => `  ${name.padEnd(width)}  ${summary}\n`).join("");
  return `usage: ternlight COMMAND …\n\n${list}\nternlight COMMAND --help tells more.\n`;
}

/** Of some words the one most like what was written; a common beginning counts double. */
export function nearest(written: string, words: readonly string[]): string {
  const scored = words.map((word) => ({ word, score: distance(written, word) - commonPrefix(written, word) }));
  return scored.reduce((best, one) => (one.score < best.score ? one : best)).word;
}

function commonPrefix(a: string, b: string): number {
  let length = 0;
  while (length < Math.min(a.length, b.length) && a[length] === b[length]) length++;
  return length;
}

/** Letters to insert, remove or change (Levenshtein). */
function distance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const changed = row[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(changed, row[j]! + 1, next[j - 1]! + 1));
    }
    row = next;
  }
  return row[b.length]!;
}
