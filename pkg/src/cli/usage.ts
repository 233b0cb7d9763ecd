/** A command, and the help that is printed of it. */

import type { Args } from "./args.ts";
import { common, type FlagName, spelled } from "./flags.ts";
import { meaning, type Syntax } from "./syntax.ts";
import type { Terminal } from "./terminal.ts";

export { meaning, nearest, UsageError } from "./syntax.ts";

export interface Command extends Syntax {
  run(args: Args, terminal: Terminal): Promise<void>;
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
