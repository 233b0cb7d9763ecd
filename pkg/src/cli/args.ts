/** A command's arguments, checked before anything is loaded. */

import { parseArgs } from "node:util";
import { checkOptions } from "../options/options.ts";
import { EngineError } from "../types/errors.ts";
import type {
  CompletionOptions,
  GenerateOptions,
  InspectOptions,
  LoadOptions,
  PerplexityOptions,
} from "../types/index.ts";
import { common, type Flag, type FlagName, spelled } from "./flags.ts";
import { meaning, nearest, type Syntax, UsageError } from "./syntax.ts";

interface OptionsOf {
  load: LoadOptions;
  inspect: InspectOptions;
  complete: GenerateOptions & CompletionOptions;
  perplexity: PerplexityOptions;
}

/** Flags that answer by themselves, whatever else there is. */
const ANSWERS: readonly FlagName[] = ["help", "version"];

export class Args {
  readonly operands: readonly string[];
  /** The texts given with each flag; none for a switch. */
  readonly #given: ReadonlyMap<FlagName, readonly string[]>;
  readonly #flag: (name: FlagName) => Flag;

  constructor(command: Syntax, argv: readonly string[]) {
    const flag = (name: FlagName) => meaning(command, name);
    this.#flag = flag;
    const names = [...command.flags, ...common];
    const options = names.map((name) => {
      const { short, value } = flag(name);
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
    const given = new Map<FlagName, string[]>();
    const operands: string[] = [];
    for (const token of tokens) {
      if (token.kind === "positional") operands.push(token.value);
      if (token.kind !== "option") continue;
      const name = names.find((name) => name === token.name);
      if (!name) throw unknown(token.rawName, names);
      const value = flag(name).value ? text(name, token, names, flag) : withoutText(name, token.value);
      given.set(name, [...(given.get(name) ?? []), ...value]);
    }
    this.operands = operands;
    this.#given = given;
    if (!ANSWERS.some((name) => this.has(name))) checkOperands(command, operands);
  }

  has(name: FlagName): boolean {
    return this.#given.has(name);
  }

  /** The text of a flag; of several the last. */
  text(name: FlagName): string | undefined {
    return this.#given.get(name)?.at(-1);
  }

  /** All texts of a flag that may be given several times. */
  texts(name: FlagName): readonly string[] {
    return this.#given.get(name) ?? [];
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

  /** What these flags say of one function's options. */
  options<Name extends keyof OptionsOf>(of: Name, names: readonly FlagName[]): OptionsOf[Name] {
    return this.checked(names, (options) => checkOptions(of, options));
  }

  /** The options that these flags set, unless `check` throws. */
  checked<Options extends object>(names: readonly FlagName[], check: (options: object) => void): Options {
    const options: Record<string, unknown> = {};
    for (const name of names.filter((name) => this.has(name))) {
      const { option, value, many, read = (text: string) => text } = this.#flag(name);
      const texts = this.#given.get(name)!;
      if (option) options[option] = value === undefined || (many ? [...texts] : read(texts.at(-1)!));
    }
    try {
      check(options);
    } catch (error) {
      throw byFlag(error, names, this.#flag);
    }
    return options as Options;
  }
}

/** The API's complaint about an option, in the words of the one who wrote a flag. */
function byFlag(error: unknown, names: readonly FlagName[], flag: (name: FlagName) => Flag): unknown {
  if (!(error instanceof EngineError)) return error;
  const name = names.find((name) => flag(name).option === error.detail.option);
  const { expected, found } = error.detail;
  return name
    ? new UsageError(`--${name} must be ${expected}, not ${found}`, { option: `--${name}`, expected, found })
    : error;
}

interface OptionToken {
  rawName: string;
  value?: string | boolean | undefined;
  inlineValue?: boolean | undefined;
}

function text(
  name: FlagName,
  { rawName, value, inlineValue }: OptionToken,
  names: readonly FlagName[],
  flag: (name: FlagName) => Flag,
): string[] {
  const missing = (why = "") =>
    new UsageError(`${rawName} needs a value: ${spelled(name, flag(name))}${why}`, { option: `--${name}` });
  if (typeof value !== "string") throw missing();
  const isFlag = names.some((name) => value === `--${name}` || value === `-${flag(name).short}`);
  if (isFlag && !inlineValue) throw missing(` (--${name}=${value} if that is the value)`);
  return [value];
}

function withoutText(name: FlagName, value: unknown): string[] {
  if (typeof value === "string") throw new UsageError(`--${name} takes no value`, { option: `--${name}` });
  return [];
}

function unknown(rawName: string, names: readonly FlagName[]): UsageError {
  const known = `--${nearest(rawName.replace(/^-+/, ""), names)}`;
  return new UsageError(`there is no flag ${rawName}; the nearest is ${known}`, { option: rawName, expected: known });
}

function checkOperands(command: Syntax, operands: readonly string[]): void {
  const missing = command.operands[operands.length];
  if (missing) throw new UsageError(`${missing} is missing`, { option: missing });
  const extra = operands[command.operands.length + (command.optional?.length ?? 0)];
  if (extra !== undefined) throw new UsageError(`unexpected argument ${JSON.stringify(extra)}`, { found: extra });
}
