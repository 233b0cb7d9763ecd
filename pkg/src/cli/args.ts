/** A command's arguments, checked before anything is loaded. */

import { parseArgs } from "node:util";
import { checkAll, checked, checkOf } from "../options/check.ts";
import {
  type CommandName,
  commandFlags,
  commands,
  type FlagGroup,
  type FlagKey,
  type FlagRow,
  flagGroups,
  hyphenated,
  type Syntax,
  spelled,
  variableOf,
} from "../options/commands.ts";
import { optionsOf } from "../options/options.ts";
import type { FunctionName } from "../options/table.ts";
import { EngineError } from "../types/errors.ts";
import type {
  CompletionOptions,
  GenerateOptions,
  InspectOptions,
  LoadOptions,
  PerplexityOptions,
} from "../types/index.ts";
import { excludedBy, refusedBy } from "./either.ts";
import { nearest, UsageError } from "./syntax.ts";
import { readSweep, readText } from "./values.ts";

interface OptionsOf {
  load: LoadOptions;
  inspect: InspectOptions;
  complete: GenerateOptions & CompletionOptions;
  perplexity: PerplexityOptions;
}

/** What stands for standard input, and for standard output where a file is written. */
export const STANDARD = "-";

/** Flags that answer by themselves, whatever else is given. */
const ANSWERS: readonly FlagKey[] = ["help", "version"];

/** What Kubernetes writes into `NAME_PORT` for each service: for one called ternlight, into the variable of --port. */
const SERVICE_LINK = /^(tcp|udp|sctp):\/\//;

export class Args {
  readonly operands: readonly string[];
  readonly #rows: readonly FlagRow[];
  /** The texts given with each flag; none for a switch. */
  readonly #given: ReadonlyMap<FlagRow, readonly string[]>;
  /** The flags that variables stand for, as they were not written. */
  readonly #fromEnv: ReadonlyMap<FlagRow, readonly string[]>;

  /** @param env variables that stand for flags which are not given: `TERNLIGHT_THREADS` for `--threads` */
  constructor(name: CommandName, argv: readonly string[], env: Readonly<Record<string, string | undefined>> = {}) {
    const command: Syntax = commands[name];
    const { own, common } = commandFlags(command);
    this.#rows = [...own, ...common];
    const { operands, given } = parse(command, this.#rows, argv);
    this.operands = operands;
    const optional = (command.optional ?? []).slice(0, Math.max(0, operands.length - command.operands.length));
    const written = [...[...given.keys()].map(({ key }) => key), ...optional];
    const left = new Set([...excludedBy(written), ...refusedBy(name, written), ...written]);
    this.#fromEnv = fromEnv(this.#rows, left, env);
    this.#given = new Map([...this.#fromEnv, ...given]);
    if (!ANSWERS.some((key) => this.has(key))) checkOperands(command, operands);
  }

  has(key: FlagKey): boolean {
    return this.#texts(key) !== undefined;
  }

  /** The text of a flag; the last one where it is given several times. */
  text(key: FlagKey): string | undefined {
    return this.#texts(key)?.at(-1);
  }

  /** All texts of a flag that may be given several times. */
  texts(key: FlagKey): readonly string[] {
    return this.#texts(key) ?? [];
  }

  ids(): number[] | undefined {
    return this.text("ids")
      ?.split(",")
      .map((part) => {
        const id = part.trim();
        if (!/^\d{1,10}$/.test(id)) {
          throw new UsageError(`--ids must be token ids like 1,2,3, not ${JSON.stringify(part)}`, { option: "--ids" });
        }
        return Number(id);
      });
  }

  /** All values of a flag that may be a sweep; undefined where it is not given. */
  sweep(key: FlagKey): number[] | undefined {
    const text = this.text(key);
    const row = this.#rows.find((row) => row.key === key)!;
    return text === undefined ? undefined : readSweep(text).map((value) => this.#checkedFlag(row, value) as number);
  }

  /** The options of a function that the flags of these groups set. */
  options<Name extends FunctionName & keyof OptionsOf>(of: Name, groups: readonly FlagGroup[]): OptionsOf[Name] {
    return this.#checked(groups, (options) => checkAll(of, optionsOf(of), options));
  }

  /** The options of a group that belongs to commands alone. */
  own<Options extends object>(group: FlagGroup): Options {
    return this.#checked([group], (options) => checkAll(group, flagGroups[group], options));
  }

  /** The flags of these groups that were given, as they are written, by their options. */
  given(groups: readonly FlagGroup[]): ReadonlyMap<string, string> {
    const rows = [...this.#given.keys()].filter(({ group }) => groups.includes(group));
    return new Map(rows.map(({ key, name }) => [key, `--${name}`]));
  }

  #texts(key: FlagKey): readonly string[] | undefined {
    const row = this.#rows.find((row) => row.key === key);
    return row && this.#given.get(row);
  }

  #checked<Options extends object>(groups: readonly FlagGroup[], check: (options: object) => void): Options {
    const options: Record<string, unknown> = {};
    const rows = this.#rows.filter(({ group }) => groups.includes(group));
    for (const row of rows) {
      const texts = this.#given.get(row);
      if (texts) options[row.key] = readText(row, texts);
    }
    try {
      check(options);
    } catch (error) {
      throw this.#byFlag(error, rows);
    }
    return options as Options;
  }

  #checkedFlag(row: FlagRow, value: unknown): unknown {
    try {
      return checked(row.group, row.key, checkOf(row.option.kind), value);
    } catch (error) {
      throw this.#byFlag(error, [row]);
    }
  }

  /** The API's complaint about an option, in the words of somebody who wrote a flag or set its variable. */
  #byFlag(error: unknown, rows: readonly FlagRow[]): unknown {
    if (!(error instanceof EngineError)) return error;
    const { found, expected: asked } = error.detail;
    const row = rows.find(({ key }) => key === error.detail.option);
    if (!row) return error;
    const option = this.#fromEnv.has(row) ? variableOf(row) : `--${row.name}`;
    const expected = row.option.flag!.read === "bytes" ? `${asked} bytes, or a text like 4GB` : asked;
    return new UsageError(`${option} must be ${expected}, not ${found}`, { option, expected, found });
  }
}

const ON = /^(1|true|on|yes)$/i;

/** A switch that is needed before its command is known, from the arguments or from the environment. */
export const isOn = (name: string, argv: readonly string[]): boolean =>
  argv.includes(`--${name}`) || ON.test(process.env[`TERNLIGHT_${name.toUpperCase()}`] ?? "");

/**
 * The flags that the environment gives: texts, or 1 and 0 for switches. A flag that may be given several times has a text a line. A flag
 * that was written wins, also over the variables of those that it excludes, and so does an operand; so are variables of flags that the
 * command refuses left aside.
 *
 * @param left the flags whose variables count for nothing
 */
function fromEnv(
  rows: readonly FlagRow[],
  left: ReadonlySet<string>,
  env: Readonly<Record<string, string | undefined>>,
): Map<FlagRow, string[]> {
  const given = new Map<FlagRow, string[]>();
  for (const row of rows) {
    const variable = variableOf(row);
    const value = env[variable];
    // An empty key would open a server that was to have one.
    if (value === "" && row.key === "apiKeys")
      throw new UsageError(`${variable} is empty: give a key, or unset it`, { option: variable });
    if (value === undefined || value === "" || ANSWERS.includes(row.key) || left.has(row.key)) continue;
    if (row.key === "port" && SERVICE_LINK.test(value)) continue;
    const { value: text, many } = row.option.flag!;
    if (text) given.set(row, many ? value.split("\n").filter((line) => line !== "") : [value]);
    else if (ON.test(value)) given.set(row, []);
    else if (!/^(0|false|off|no)$/i.test(value)) {
      const expected = "1 or 0";
      throw new UsageError(`${variable} must be ${expected}, not ${JSON.stringify(value)}`, {
        option: variable,
        expected,
      });
    }
  }
  return given;
}

interface Parsed {
  operands: string[];
  given: Map<FlagRow, readonly string[]>;
}

function parse(command: Syntax, rows: readonly FlagRow[], argv: readonly string[]): Parsed {
  const options = rows.map(({ name, option: { flag } }) => {
    const { short, value } = flag!;
    return [name, { type: value ? "string" : "boolean", ...(short ? { short } : {}) } as const] as const;
  });
  // Not strict: the runtimes word their errors in different ways, and none names the nearest flag.
  const { tokens } = parseArgs({
    args: [...argv],
    options: Object.fromEntries(options),
    allowPositionals: true,
    strict: false,
    tokens: true,
  });
  const given = new Map<FlagRow, readonly string[]>();
  const operands: string[] = [];
  for (const token of tokens) {
    if (token.kind === "positional") operands.push(token.value);
    if (token.kind !== "option") continue;
    const row = rows.find(({ name }) => name === token.name);
    if (!row) throw unknown(token.rawName, command, rows);
    const texts = row.option.flag!.value ? textOf(row, token, rows) : withoutText(row, token.value);
    given.set(row, [...(given.get(row) ?? []), ...texts]);
  }
  return { operands, given };
}

interface OptionToken {
  rawName: string;
  value?: string | boolean | undefined;
  inlineValue?: boolean | undefined;
}

function textOf(row: FlagRow, { rawName, value, inlineValue }: OptionToken, rows: readonly FlagRow[]): string[] {
  const missing = (why = "") =>
    new UsageError(`${rawName} needs a value: ${spelled(row)}${why}`, { option: `--${row.name}` });
  if (typeof value !== "string") throw missing();
  const isFlag = rows.some(({ name, option }) => value === `--${name}` || value === `-${option.flag!.short}`);
  if (isFlag && !inlineValue) throw missing(` (--${row.name}=${value} if that is the value)`);
  return [value];
}

function withoutText({ name }: FlagRow, value: unknown): string[] {
  if (typeof value === "string") throw new UsageError(`--${name} takes no value`, { option: `--${name}` });
  return [];
}

/** A flag of an earlier version is refused with what stands in for it, any other with the nearest one. */
function unknown(rawName: string, { moved = {} }: Syntax, rows: readonly FlagRow[]): UsageError {
  const written = rawName.replace(/^-+/, "");
  const now = rows.find(({ option: { was } }) => was !== undefined && hyphenated(was) === written);
  const instead = Object.hasOwn(moved, written) ? moved[written] : now && `--${now.name}`;
  const expected =
    instead ??
    `--${nearest(
      written,
      rows.map(({ name }) => name),
    )}`;
  const hint = instead === undefined ? "the nearest is" : "in its place there is";
  return new UsageError(`there is no flag ${rawName}; ${hint} ${expected}`, { option: rawName, expected });
}

function checkOperands(command: Syntax, operands: readonly string[]): void {
  const missing = command.operands[operands.length];
  if (missing) throw new UsageError(`${missing} is missing`, { option: missing });
  const known: readonly (string | undefined)[] = [...command.operands, ...(command.optional ?? [])];
  const extra = command.many
    ? undefined
    : operands.find((operand, i) => known[i] === undefined || (known[i] === STANDARD && operand !== STANDARD));
  if (extra !== undefined) throw new UsageError(`unexpected argument ${JSON.stringify(extra)}`, { found: extra });
}
