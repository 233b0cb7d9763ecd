/** The commands of the command line: what each takes, and which rows of the option table are its flags. */

import type { Group, Option } from "./option.ts";
import * as batches from "./table/batch.ts";
import * as own from "./table/command_line.ts";
import * as operating from "./table/operating.ts";
import * as quality from "./table/quality.ts";
import * as server from "./table/server.ts";
import { groups } from "./table.ts";

/** Groups of the table whose rows may be flags, those of functions and those of commands. */
export const flagGroups = {
  ...groups,
  ...own,
  ...operating,
  ...quality,
  ...server,
  ...batches,
} as const satisfies Record<string, Group>;

export type FlagGroup = keyof typeof flagGroups;
type Keys<T> = T extends T ? keyof T : never;
/** Options that commands know, under their names in the table. */
export type FlagKey = Keys<(typeof flagGroups)[FlagGroup]>;

export interface Syntax {
  readonly summary: string;
  readonly operands: readonly string[];
  /** Operands that may follow; - is only itself. */
  readonly optional?: readonly string[];
  /** The last operand may be given several times. */
  readonly many?: true;
  /** The part of the usage line that says which flags there must be. */
  readonly needs?: string;
  readonly flags: readonly FlagGroup[];
  /** Flags of earlier versions, and what stands in for them. */
  readonly moved?: Readonly<Record<string, string>>;
}

/** What every command takes that loads a model. */
export const engineFlags = ["runtime", "plan", "batching", "source"] as const satisfies readonly FlagGroup[];
export const commonFlags = [...engineFlags, "everyCommand"] as const satisfies readonly FlagGroup[];

const adapters = ["adapterFlags", "loading"] as const;

export const commands = {
  run: {
    summary: "Continues a text and prints what comes as it comes.",
    operands: ["MODEL"],
    optional: ["-"],
    needs: "(-p TEXT | --ids 1,2,3 | - | --prompts IN.jsonl)",
    flags: [
      "promptFlags",
      "promptText",
      "promptIds",
      "generation",
      "sampling",
      "completions",
      "formatFlags",
      ...adapters,
      "sessionFlags",
      "prompting",
      "serving",
    ],
  },
  logits: {
    summary: "Token ids in, logits out: to check an engine or a conversion.",
    operands: ["MODEL"],
    needs: "--ids 1,2,3",
    flags: ["promptIds", "logits", ...adapters],
  },
  tokenize: {
    summary: "Shows the token ids of a text.",
    operands: ["MODEL"],
    optional: ["-"],
    needs: "(-p TEXT | -)",
    flags: ["promptText", "prompting"],
  },
  perplexity: {
    summary: "Measures how well a model predicts a text, window by window.",
    operands: ["MODEL", "FILE"],
    flags: ["perplexity", ...adapters],
  },
  inspect: {
    summary: "Shows what a model is made of and what running it takes.",
    operands: ["MODEL"],
    flags: ["inspecting", "inspectFlags", "checkFlags"],
  },
  recommend: {
    summary: "Recommends settings for a load, and tells what they give; exits 1 where none gives what is asked for.",
    operands: ["MODEL"],
    flags: ["advising", "adviceFlags", "serving", "loading"],
  },
  "can-run": {
    summary:
      "Tells from its header whether a model fits in memory, and with which settings; exits 1 where it does not.",
    operands: ["MODEL"],
    flags: ["fitting", "serving", "loading"],
  },
  "device-report": {
    summary: "Measures what this machine reads and multiplies, for recommend --device on another one.",
    operands: [],
    flags: [],
  },
  health: {
    summary: "Lets a model write and tells how well it is: weights, cache, activations and text (exits 1 on an alert).",
    operands: ["MODEL"],
    optional: ["PROMPT"],
    needs: "[PROMPT]",
    flags: ["healthFlags", "loading"],
  },
  convert: {
    summary:
      "Writes a model as one GGUF file. Ternary and 1-bit codes are copied exactly; nothing else can be converted.",
    operands: ["MODEL", "OUT.gguf"],
    flags: ["convertFlags"],
  },
  quality: {
    summary: "Measures what each setting of a model costs in quality and gains in speed and memory.",
    operands: ["MODEL", "TEXT"],
    flags: ["qualityFlags", "perplexity"],
  },
  slice: {
    summary: "Writes a model with a smaller vocabulary, in which any text still encodes.",
    operands: ["MODEL"],
    needs: "(--keep N --text FILE | --tokens FILE [--text FILE]) --output O",
    flags: ["sliceFlags"],
  },
  calibrate: {
    summary: "Chooses how the input of each matrix is rounded, and tells what that costs.",
    operands: ["MODEL"],
    needs: "--dataset FILE --output-dir D",
    flags: ["calibrateFlags"],
  },
  prune: {
    summary: "Writes a model without the layers that it needs least.",
    operands: ["MODEL"],
    needs: "--calibration-data F --target-layers N --output O",
    flags: ["pruneFlags"],
  },
  bench: {
    summary: "Measures how fast a model runs here, and what this machine could do at best.",
    operands: [],
    optional: ["MODEL"],
    needs: "(MODEL | --shape S)",
    flags: ["bench", "syntheticFlags"],
    moved: { prompt: "--prompt-tokens", load: "the command loadtest" },
  },
  serve: {
    summary: "Serves models to the clients of OpenAI's interface.",
    operands: [],
    optional: ["[NAME=]MODEL"],
    many: true,
    needs: "[[NAME=]MODEL …]",
    flags: ["serveFlags", "serverApp", "serving", "loading", "watchFlags"],
  },
  batch: {
    summary:
      "Answers the lines of a file, as many at once as the engine computes best, and loses nothing when it is stopped.",
    operands: ["IN.jsonl"],
    needs: "--model M --out OUT.jsonl",
    flags: ["batchFlags", "concurrencyFlags", "queuePlace", "queueFlags", "serving", "loading"],
  },
  "batch worker": {
    summary: "Works on the jobs of a queue until it is stopped.",
    operands: [],
    needs: "--queue URL [--folder DIR] --model M",
    flags: ["queuePlace", "workerFlags", "concurrencyFlags", "metricsFlags", "serving", "loading"],
  },
  "batch status": {
    summary: "Shows jobs, and how full their queues are.",
    operands: [],
    optional: ["JOB"],
    needs: "--queue URL [--folder DIR]",
    flags: ["queuePlace", "statusFlags", "metricsFlags"],
  },
  "batch cancel": {
    summary: "Ends a job; the answers that are there stay.",
    operands: ["JOB"],
    needs: "--queue URL [--folder DIR]",
    flags: ["queuePlace"],
  },
  "batch retry": {
    summary: "Lets a job go on that was cancelled, and tries lines again that ended too many workers.",
    operands: ["JOB"],
    needs: "--queue URL [--folder DIR]",
    flags: ["queuePlace"],
  },
  "batch drain": {
    summary: "Lets workers finish what they have and take no more.",
    operands: [],
    needs: "--queue URL [--folder DIR]",
    flags: ["queuePlace", "drainFlags"],
  },
  chat: {
    summary: "Talks with a model, or with a server of one, in the terminal.",
    operands: [],
    optional: ["MODEL|URL"],
    needs: "[MODEL | URL]",
    flags: ["chatFlags", "generation", "sampling", "serving", "loading"],
  },
  "bench diff": {
    summary:
      "Compares two reports or sweeps of bench --json; exits 1 when the second is worse by more than both varied.",
    operands: ["A.json", "B.json"],
    flags: [],
  },
  "bench check": {
    summary: "Measures what a budget names, or takes a report of it, and exits 1 when a limit is missed.",
    operands: ["BUDGET.json"],
    optional: ["A.json"],
    flags: [],
  },
  loadtest: {
    summary:
      "Asks a model or a server as many clients at once: what they wait for, or whether each gets what it gets alone (exits 1 when not).",
    operands: [],
    optional: ["MODEL"],
    needs: "(MODEL | --model MODEL | --shape S | --host URL)",
    flags: ["loadPlan", "loadtest", "serving", "syntheticFlags"],
  },
  models: {
    summary:
      "Lists public 1-bit and ternary models: what each takes, whether it fits here, and the line that loads it.",
    operands: [],
    flags: ["fitting", "speedFlags"],
  },
  "cache list": {
    summary: "Shows what is kept of models, so that it need not be downloaded again.",
    operands: [],
    flags: [],
  },
  "cache delete": {
    summary: "Deletes what came from a URL, everything beneath one that ends in /, or everything there is.",
    operands: [],
    optional: ["URL"],
    needs: "(URL | --all)",
    flags: ["cacheFlags"],
  },
  doctor: {
    summary:
      "Shows what this runtime and this machine can do with a model, and whether an address serves one well; exits 1 where something does not run.",
    operands: [],
    optional: ["MODEL"],
    flags: ["serving", "loading"],
  },
} as const satisfies Record<string, Syntax>;

export type CommandName = keyof typeof commands;

/** A row of the table as a flag. */
export interface FlagRow {
  key: FlagKey;
  group: FlagGroup;
  /** Without dashes. */
  name: string;
  option: Option;
}

/** The flags of some groups, in the table's order. */
export const flagsOf = (names: readonly FlagGroup[]): FlagRow[] =>
  names.flatMap((group) =>
    Object.entries<Option>(flagGroups[group]).flatMap(([key, option]): FlagRow[] =>
      option.flag ? [{ key: key as FlagKey, group, name: option.flag.name ?? hyphenated(key), option }] : [],
    ),
  );

/** The flags of a command: its own, and those of every command whose names it does not take for its own. */
export function commandFlags({ flags }: Syntax): { own: FlagRow[]; common: FlagRow[] } {
  const own = flagsOf(flags);
  const taken = own.map(({ name }) => name);
  return { own, common: flagsOf(commonFlags).filter(({ name }) => !taken.includes(name)) };
}

export const hyphenated = (name: string): string => name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);

/** The variable of the environment that stands for a flag. */
export const variableOf = ({ name }: FlagRow): string => `TERNLIGHT_${name.toUpperCase().replaceAll("-", "_")}`;

/** As help shows it: `-n, --max-tokens N`. */
export function spelled({ name, option: { flag } }: FlagRow): string {
  const { short, value } = flag!;
  return `${short ? `-${short}, ` : ""}--${name}${value ? ` ${value}` : ""}`;
}

/** A default in words: `256 tokens`, `0.7, or the model's`; null where it is nothing to speak of. */
export function defaultText({ default: value, otherwise, unit, model }: Option): string | null {
  if (value === undefined) return otherwise ?? null;
  const shown = typeof value === "string" ? JSON.stringify(value) : String(value);
  return `${shown}${unit ? ` ${value === 1 ? unit.replace(/s$/, "") : unit}` : ""}${model ? ", or the model's" : ""}`;
}

/** What stands for an operand. */
export const operands: Readonly<Record<string, string>> = {
  MODEL: "A file, a folder or a URL; ternlight-demo is the model that ships.",
  "[NAME=]MODEL": "A model and the name that clients use; ternlight-demo where none is given.",
  "MODEL|URL": "A model, or the address of a server; ternlight-demo where none is given.",
  "-": "The text is on standard input, as where nothing is said and a pipe or a file is there.",
  PROMPT: "A text that the model goes on from.",
  URL: "A model's address.",
  "IN.jsonl":
    "Requests, one a line: OpenAI's batch lines, {prompt} or {messages}; or CSV with --template. Also .gz and .zst; - is standard input.",
  JOB: "A job's id, as batch and batch status show it.",
  FILE: "A text in UTF-8; - is standard input.",
  TEXT: "A text in UTF-8; - is standard input.",
  "OUT.gguf": "The file to write; - is standard output.",
  "A.json": "What bench --json printed before.",
  "B.json": "What bench --json printed after.",
  "BUDGET.json": "A model, what to measure of it, and limits of numbers of the report.",
};

export const usageLine = (name: CommandName): string => {
  const { operands, needs = "" }: Syntax = commands[name];
  return ["usage: ternlight", name, ...operands, needs, "[options]"].filter((word) => word !== "").join(" ");
};

/** The sentence of a flag, with its values and its default. */
export function flagHelp({ option }: FlagRow): string {
  const { flag, kind, help } = option;
  const sentence = flag!.help ?? help;
  if (!flag!.value) return sentence;
  const values = typeof kind === "object" && "values" in kind ? [kind.values.join(", ")] : [];
  const byDefault = flag!.otherwise ?? defaultText(option)?.replaceAll('"', "") ?? "none";
  const facts = [...values, ...(byDefault === "none" ? [] : [`default: ${byDefault}`])].join("; ");
  return facts === "" ? sentence : `${sentence.replace(/\.$/, "")} (${facts}).`;
}
