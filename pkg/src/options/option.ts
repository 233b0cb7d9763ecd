/** What a row of the option table says. Rows are data: the build strips what a page has no use for, and other programs read them as JSON. */

/** What a value may be. A name stands for a check of its own in `check.ts`. */
export type Kind =
  | { readonly integer: Range }
  | { readonly number: Range }
  /** One of these texts; with `map`, or an object. */
  | { readonly values: readonly string[]; readonly map?: true }
  | NamedKind;

/** The least and the greatest value. */
export type Range = readonly [least: number, most: number];

export type NamedKind =
  | "adapters"
  | "bannedSequences"
  | "boolean"
  | "cache"
  | "damage"
  | "function"
  | "health"
  | "integrity"
  | "list"
  | "logitBias"
  | "module"
  | "object"
  | "prefill"
  | "responseFormat"
  | "samplers"
  | "signal"
  | "stop"
  | "text"
  | "texts"
  | "toolChoice";

/**
 * Who acts on an option. `caller`: the side that called, which sends nothing on. `prompt`: the worker, as a part of the prompt.
 * `host`: the worker, which sends nothing on. `plan`: the engine, from the plan of a load on. `sampler`: the engine, for each answer.
 * `command`: a command alone.
 */
export type Target = "caller" | "prompt" | "host" | "plan" | "sampler" | "command";

export interface Flag {
  /** Without dashes; the option's name with hyphens where none is given. */
  readonly name?: string;
  readonly short?: string;
  /** What stands for its text in usage lines; a switch takes none. */
  readonly value?: string;
  /** What a switch sets; true where nothing is given. */
  readonly sets?: boolean;
  /** It may be given several times, and the option is the list of its texts. */
  readonly many?: true;
  /** The sentence for the flag, where the option's does not fit it. */
  readonly help?: string;
  /** The default in words, where the option's does not fit the flag. */
  readonly otherwise?: string;
  /** How its text is read. Numbers are read as numbers by themselves, with `percent` also before a %; `sweep` is for several of them, each checked as the option is. */
  readonly read?: "biases" | "bytes" | "ids" | "list" | "map" | "percent" | "sweep";
}

export interface Option {
  readonly kind: Kind;
  readonly to: Target;
  readonly default?: string | number | boolean;
  /** The default in words, where no value stands for it. */
  readonly otherwise?: string;
  /** What the engine takes where it hears nothing, if that is not the default. The default is sent to it then. */
  readonly engineDefault?: number;
  /** Where a model's own default stands: a field of generation_config.json and a key of GGUF headers behind `general.sampling.`. */
  readonly model?: { readonly file?: string; readonly gguf?: string };
  readonly unit?: string;
  /** The option's name in earlier versions, which is refused with the new one. */
  readonly was?: string;
  readonly flag?: Flag;
  /** One sentence. */
  readonly help: string;
}

export type Group = Readonly<Record<string, Option>>;

export const MAX_TOKENS = 2 ** 31 - 1;
