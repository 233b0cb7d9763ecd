/**
 * Multiple-choice questions scored by log-likelihood, as lm-eval's harness scores them: the choice follows its query behind a space, and
 * is told by the sum of its tokens' log-probabilities (acc), or by that sum for each of its characters (acc_norm).
 */

import { logSum } from "../metrics/log_sum.ts";
import { checkAll, isObject, type Known, wrong } from "../options/check.ts";
import { show } from "../options/show.ts";
import { EngineError } from "../types/errors.ts";
import type { Model, Session } from "../types/index.ts";

export interface Task {
  query: string;
  choices: readonly string[];
  /** The place of the right choice. */
  gold: number;
}

export interface ScoredChoice {
  /** Sum of the tokens' log-probabilities. */
  logLikelihood: number;
  /** Mean for each token. */
  perToken: number;
  tokens: number;
}

export interface ScoredTask {
  choices: ScoredChoice[];
  gold: number;
  /** The likeliest choice, and the likeliest by character. */
  best: number;
  bestNorm: number;
}

export interface Accuracy {
  acc: number;
  accNorm: number;
  /** Standard errors; null of one task, which has none. */
  accError: number | null;
  accNormError: number | null;
  count: number;
}

export interface TaskReport {
  accuracy: Accuracy;
  tasks: ScoredTask[];
  /** Tokens that were computed. What choices share is computed once, and so is what a query begins with as the one before. */
  computed: number;
}

export interface TaskOptions {
  signal?: AbortSignal | undefined;
  onProgress?: ((share: number) => void) | undefined;
}

/** What a line's choices gave: the sum and the count of tokens of each. */
export interface Sums {
  sums: readonly number[];
  tokens: readonly number[];
}

/** Lines that were scored before, by their places. */
export interface KeptSums {
  task(at: number): Sums | null;
  keepTask(at: number, found: Sums): void;
}

/** The lines of a file. @throws {EngineError} `BadValue` with the line that is none */
export function readTasks(text: string, file = "tasks"): Task[] {
  const lines = text.split(/\r?\n/);
  const tasks = lines.flatMap((line, at) => (line.trim() === "" ? [] : [readTask(line, `${file}, line ${at + 1}`)]));
  if (tasks.length === 0) throw new EngineError("BadValue", `${file} holds no task`, { file });
  return tasks;
}

function readTask(line: string, place: string): Task {
  try {
    return checkTask(JSON.parse(line), place);
  } catch (cause) {
    if (!(cause instanceof SyntaxError)) throw cause;
    throw new EngineError("BadValue", `${place} is not JSON: ${cause.message}`, {}, { cause });
  }
}

/** @param place of the task, for errors. @param option where it is no line of a file: how the caller writes its place */
function checkTask(value: unknown, place: string, option?: string): Task {
  const refused = (key: string, expected: string, value: unknown) => {
    const found = show(value);
    const named = option && { option: key ? `${option}.${key}` : option };
    const what = key ? `${place}: ${key}` : place;
    const detail = { ...(key ? { key } : {}), ...named, expected, found };
    return new EngineError("BadValue", `${what} must be ${expected}, not ${found}`, detail);
  };
  if (isObject(value)) throw refused("", "{ query, choices, gold }", value);
  const { query, choices, gold } = value as Partial<Task>;
  if (typeof query !== "string") throw refused("query", "a text", query);
  if (!Array.isArray(choices)) throw refused("choices", "a list of texts", choices);
  if (choices.length === 0) throw refused("choices", "a list of one text at least", choices);
  const bad = Array.from<unknown>(choices).findIndex((one) => typeof one !== "string" || one === "");
  if (bad >= 0) throw refused(`choices[${bad}]`, "a text that is not empty", choices[bad]);
  if (!Number.isInteger(gold) || gold! < 0 || gold! >= choices.length) {
    throw refused("gold", `an integer from 0 to ${choices.length - 1}`, gold);
  }
  return { query, choices, gold: gold! };
}

/** Kinds of the options. */
const SCORING: Known = { signal: { kind: "signal" }, onProgress: { kind: "function" } };

/**
 * @throws {EngineError} `BadValue` for a task without a query, choices or the place of the right one, `InvalidArgument` for no list of
 * tasks and for options that there are not
 */
export async function scoreTasks(model: Model, tasks: readonly Task[], options: TaskOptions = {}): Promise<TaskReport> {
  const name = "scoreTasks";
  if (typeof Object(model).session !== "function") throw wrong(name, "model", "a loaded model", model);
  if (!Array.isArray(tasks) || tasks.length === 0) throw wrong(name, "tasks", "a list of tasks", tasks);
  const whole = Array.from<unknown, Task>(tasks, (task, at) =>
    checkTask(task, `${name}: tasks[${at}]`, `tasks[${at}]`),
  );
  return scoreSome(model, whole, checkAll(name, SCORING, options), { task: () => null, keepTask() {} });
}

/** Scores what is not kept. @param model null where all lines are */
export async function scoreSome(
  model: Model | null,
  tasks: readonly Task[],
  { signal, onProgress = () => {} }: TaskOptions,
  kept: KeptSums,
): Promise<TaskReport> {
  const scored: ScoredTask[] = [];
  let computed = 0;
  // One for all lines: what a query has in common with the one before, a preamble of examples, is there already.
  const session = model?.session();
  try {
    for (const [at, task] of tasks.entries()) {
      let found = kept.task(at);
      if (!found) {
        const { context, choices } = await idsOf(model!, task);
        const { sums, computed: own } = await scoreChoices(session!, model!, context, choices, signal);
        computed += own;
        found = { sums, tokens: choices.map(({ length }) => length) };
        kept.keepTask(at, found);
      }
      scored.push(judged(task, found));
      onProgress(scored.length / tasks.length);
    }
  } finally {
    await session?.close();
  }
  return { accuracy: accuracyOf(scored), tasks: scored, computed };
}

/**
 * The ids of the query and those that each choice adds to it. Spaces that end the query belong to the choices, as tokens of words begin
 * with their space.
 */
async function idsOf(model: Model, { query, choices }: Task): Promise<{ context: number[]; choices: number[][] }> {
  const { bos, eos, encode } = await special(model);
  if (query === "") {
    const start = bos ?? eos;
    if (start === null) {
      const reason = "tasks: a query is empty, and the model has no BOS to begin with";
      throw new EngineError("BadValue", reason, { key: "query" });
    }
    const ids = await Promise.all(choices.map((choice) => encode(` ${choice}`, false)));
    return { context: [start], choices: ids.map((one) => (one[0] === start ? one.slice(1) : one)) };
  }
  const own = query.trimEnd();
  const spaces = query.slice(own.length);
  const context = await encode(own, true);
  if (context.length === 0) {
    // The harness refuses it, too: only of an empty query BOS or EOS takes the place.
    const reason = "tasks: a query is white space alone, and the model's tokenizer puts no BOS before it";
    throw new EngineError("BadValue", reason, { key: "query", expected: "a text or none", found: "white space" });
  }
  const whole = await Promise.all(choices.map((choice) => encode(`${own}${spaces} ${choice}`, true)));
  return { context, choices: whole.map((ids) => ids.slice(context.length)) };
}

async function special(model: Model) {
  const { bos, eos } = model.info.tokenizer ?? { bos: null, eos: [] };
  const id = async (text: string | null | undefined) =>
    text == null ? null : ((await model.tokenize(text, { addSpecial: false }))[0] ?? null);
  const encode = (text: string, addSpecial: boolean) => {
    // A text that brings its BOS along gets no second one.
    const again = bos !== null && text.startsWith(bos);
    return model.tokenize(text, { addSpecial: addSpecial && !again });
  };
  return { bos: await id(bos), eos: await id(eos[0]), encode };
}

/** The sum of each choice's log-probabilities. What the session holds of the context is not computed again, and the choices go on from it side by side. */
export async function scoreChoices(
  session: Session,
  model: Model,
  context: readonly number[],
  choices: readonly (readonly number[])[],
  signal?: AbortSignal,
): Promise<{ sums: number[]; computed: number }> {
  const empty = choices.findIndex(({ length }) => length === 0);
  if (empty >= 0) {
    const reason = `tasks: choice ${empty} adds no token to its query`;
    throw new EngineError("BadValue", reason, { key: "choices", expected: "a token at least", found: "none" });
  }
  const longest = Math.max(...choices.map(({ length }) => length));
  const room = model.info.contextLength - longest;
  if (room < 1) {
    const reason = `tasks: a choice of ${longest} tokens does not fit in the context`;
    throw new EngineError("ContextFull", reason, { expected: `at most ${model.info.contextLength - 1} tokens` });
  }
  // As the harness does, what is too long loses its beginning.
  const kept = context.slice(-room);
  // The last token is computed in any case: the choices begin with its logits.
  const held = session.tokens;
  let same = 0;
  while (same < Math.min(held.length, kept.length - 1) && held[same] === kept[same]) same++;
  await session.rewind(held.length - same);
  const first = await nextLogits(session, kept.slice(same), signal);
  await session.rewind(session.tokens.length - kept.length);
  const sum = logSum(first);
  const forks = choices.map(async (ids) => {
    const [one, ...more] = ids as [number, ...number[]];
    return first[one]! - sum + (more.length > 0 ? await follow(session, one, more, signal) : 0);
  });
  const computed = kept.length - same + choices.reduce((all, { length }) => all + length - 1, 0);
  return { sums: await Promise.all(forks), computed };
}

async function nextLogits(session: Session, ids: readonly number[], signal?: AbortSignal): Promise<Float32Array> {
  let row = new Float32Array();
  const logitsProcessor = (logits: Float32Array) => {
    row = logits.slice();
  };
  await session.generate(ids, { maxTokens: 1, ignoreEos: true, ...PLAIN, logitsProcessor, signal }).finished;
  return row;
}

/** Nothing but the model's own logits decides. */
const PLAIN = { temperature: 0, generationConfig: "none" } as const;

/** Goes on behind `first` with given ids in a fork, and sums up their log-probabilities. */
async function follow(session: Session, first: number, ids: readonly number[], signal?: AbortSignal): Promise<number> {
  const fork = await session.fork();
  let [at, sum] = [0, 0];
  const logitsProcessor = (logits: Float32Array) => {
    const id = ids[at++]!;
    sum += logits[id]! - logSum(logits);
    logits.fill(-Infinity);
    logits[id] = 0;
  };
  try {
    const options = { maxTokens: ids.length, ignoreEos: true, ...PLAIN, logitsProcessor, signal };
    await fork.generate([first], options).finished;
    return sum;
  } finally {
    await fork.close();
  }
}

function judged({ choices: texts, gold }: Task, { sums, tokens: counts }: Sums): ScoredTask {
  const choices = sums.map((logLikelihood, i) => {
    const tokens = counts[i]!;
    return { logLikelihood, perToken: tokens > 0 ? logLikelihood / tokens : 0, tokens };
  });
  // Characters as Python counts them.
  const norms = sums.map((sum, i) => sum / [...texts[i]!].length);
  return { choices, gold, best: largest(sums), bestNorm: largest(norms) };
}

/** The first of the largest. */
const largest = (values: readonly number[]) => values.indexOf(Math.max(...values));

function accuracyOf(tasks: readonly ScoredTask[]): Accuracy {
  const count = tasks.length;
  const share = (right: (task: ScoredTask) => boolean) => tasks.filter(right).length / count;
  // Of a sample's mean, as the harness has it.
  const error = (p: number) => (count > 1 ? Math.sqrt((p * (1 - p)) / (count - 1)) : null);
  const acc = share(({ best, gold }) => best === gold);
  const accNorm = share(({ bestNorm, gold }) => bestNorm === gold);
  return { acc, accNorm, accError: error(acc), accNormError: error(accNorm), count };
}
