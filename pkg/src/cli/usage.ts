/** A command, and the help that is printed about it. */

import {
  type CommandName,
  commandFlags,
  commands,
  type FlagRow,
  flagHelp,
  operands,
  type Syntax,
  spelled,
  usageLine,
} from "../options/commands.ts";
import type { Args } from "./args.ts";
import type { Terminal } from "./terminal.ts";

export interface Command {
  name: CommandName;
  run(args: Args, terminal: Terminal): Promise<void>;
}

type Row = [string, string];

export function help(name: CommandName): string {
  const command: Syntax = commands[name];
  const flags = commandFlags(command);
  const flagRows = (rows: readonly FlagRow[]) => rows.map((row): Row => [spelled(row), flagHelp(row)]);
  const named = [...command.operands, ...(command.optional ?? [])];
  const own = [...named.map((name): Row => [name, operands[name] ?? ""]), ...flagRows(flags.own)];
  const shared = flagRows(flags.common);
  const width = Math.max(...[...own, ...shared].map(([left]) => left.length));
  const list = (rows: Row[]) => rows.map(([left, right]) => `  ${left.padEnd(width)}  ${right}\n`).join("");
  const env = "\nEach flag may also stand in the environment: --max-waiting as TERNLIGHT_MAX_WAITING.\n";
  return `${usageLine(name)}\n\n${command.summary}\n\n${list(own)}\nWith every command:\n${list(shared)}${env}`;
}

/** All commands, or those whose names begin with a word. */
export function overview(word?: string): string {
  const all = Object.entries(commands).filter(([name]) => word === undefined || name.startsWith(`${word} `));
  const width = Math.max(...all.map(([name]) => name.length));
  const rows = all.map(([name, { summary }]) => `  ${name.padEnd(width)}  ${summary}\n`);
  const command = word === undefined ? "COMMAND" : `${word} COMMAND`;
  return `usage: ternlight ${command} …\n\n${rows.join("")}\nternlight ${command} --help says more.\n`;
}
