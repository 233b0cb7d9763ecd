/** Generates an answer: prompt, constraint, sampling, hooks, pieces. */

import type { Constraint } from "../../constrain/constraint.ts";
import type { Recorder } from "../../metrics/recorder.ts";
import type { FormatSpec } from "../../options/response_format.ts";
import { samplerDefaults } from "../../options/routes.ts";
import { Sender } from "../../rpc/backpressure.ts";
import type { GenerateSettings, PromptSpec } from "../../rpc/protocol.ts";
import { EngineError } from "../../types/errors.ts";
import type { Finished, FinishReason } from "../../types/index.ts";
import { compile } from "../../wasm/load.ts";
import { Answer } from "../answer.ts";
import type { CallContext, Handler } from "../call.ts";
import type { EngineWork } from "../events.ts";
import { flat } from "../flat.ts";
import { ask, remote } from "../hooks.ts";
import type { Listener } from "../loop.ts";
import type { Platform } from "../platform.ts";
import { promptIds } from "../prompt.ts";
import { adapt, request, type Settle } from "../request.ts";
import type { HostState } from "../state.ts";
import type { Text } from "../text.ts";

export const generate: Handler<"generate"> = async (state, { session, prompt, settings }, context) => {
  const { engine, text } = state.model;
  const own = session === null;
  const id = own ? engine.open() : state.session(session);
  let constraint: Constraint | null = null;
  // It may begin to count meanwhile: what it has not seen begin it must not see end.
  let counting: Recorder | null = null;
  try {
    const format = settings.responseFormat ?? formatOfCalls(text, prompt);
    if (format) constraint = await constrain(state, format, !settings.ignoreEos, context);
    context.signal.throwIfAborted();
    if (!own && state.sessions.get(session) !== id) throw new EngineError("Closed", "the session is closed");
    adapt(state, id, settings.adapters);
    counting = state.recorder;
    counting?.adapted(settings.adapters, 1);
    const { finished, surplus } = await run(state, { session: id, prompt, settings, constraint, context });
    if ("tools" in prompt && prompt.tools) {
      Object.assign(finished, text.chat.findCalls(text.tokenizer.decode(finished.tokens), prompt.tools));
    }
    state.recorder?.answered(finished.repetitionScore, finished.tokens.length);
    if (own) return { finished, held: [] };
    engine.truncate(id, engine.tokens(id).length - surplus);
    return { finished, held: state.tokens(id) };
  } finally {
    constraint?.free();
    counting?.adapted(settings.adapters, -1);
    if (own) engine.close(id);
  }
};

/** The format of an answer that may hold nothing but calls; null where a prompt does not ask for one. */
function formatOfCalls(text: Text, prompt: PromptSpec): FormatSpec | null {
  if (!("toolChoice" in prompt) || !prompt.toolChoice) return null;
  return text.chat.callFormat(prompt.tools ?? [], prompt.toolChoice);
}

async function constrain(
  state: HostState,
  format: FormatSpec,
  mayEnd: boolean,
  context: CallContext<"generate">,
): Promise<Constraint> {
  const { text, info } = state.model;
  const { platform } = state;
  context.onStop = () => (context.stopped = true);
  context.onRead = (pieces) => (context.read = pieces);
  const { Constrainer } = await platform.formats();
  state.constrainer ??= new Constrainer({
    tokenizer: text.tokenizer,
    vocab: info.vocab,
    ends: text.ends,
    compiled: () => constrainModule(platform),
    spawn: platform.given ? null : platform.spawnSibling,
  });
  return state.constrainer.start(format, mayEnd);
}

/** The address is right in the bundles, which lie beside the wasm file. */
async function constrainModule({ given, fetchFile }: Platform): Promise<WebAssembly.Module> {
  if (!given) return compile(new URL("./constrain.wasm", import.meta.url), fetchFile);
  if (given.constrain) return given.constrain;
  const message =
    "responseFormat and toolChoice need the load option constrain here: the compiled module of constrain.wasm";
  throw new EngineError("UnsupportedOption", message, { option: "constrain" });
}

interface Run {
  /** The engine's. */
  session: number;
  prompt: PromptSpec;
  settings: GenerateSettings;
  constraint: Constraint | null;
  context: CallContext<"generate">;
}

interface Outcome {
  finished: Finished;
  /** Tokens that the session holds and the answer does not: those of a stop text. */
  surplus: number;
}

/** A chat that shifts leaves out whole turns: where it has filled its context, it goes on as another request of fewer messages. */
async function run(state: HostState, run: Run): Promise<Outcome> {
  const { session, prompt, settings, context } = run;
  const { maxTokens = Infinity, sanitize, onContextFull } = settings;
  const shift = onContextFull === "shift";
  const { truncate: side = "none" } = settings;
  const free = Math.min(maxTokens, Math.floor(state.model.info.contextLength / 4));
  const prompting = { sanitize, shift, ...(side === "none" ? {} : { truncate: { side, free } }) };
  let { ids, dropped, truncated = 0 } = promptIds(state.model, prompt, session, prompting);
  const answer = new Answer({
    tokenizer: state.model.text.tokenizerOrNull,
    promptTokens: ids,
    stop: settings.stop,
    special: settings.keepSpecialTokens ?? false,
    send: context.send,
  });
  const ended = (reason: FinishReason): Outcome => ({
    finished: { ...answer.finish(reason, dropped), ...(truncated > 0 ? { truncatedTokens: truncated } : {}) },
    surplus: answer.surplus,
  });
  if (context.stopped) return ended("stopped");
  let byTurns = shift && "messages" in prompt;
  for (let seed = settings.seed ?? randomSeed(); ; seed = (seed + 1) % 2 ** 53) {
    const left = maxTokens - answer.tokens.length;
    const work = workOf({ ...settings, seed, ...(byTurns && { onContextFull: "stop" }) }, left, state.model.text, run);
    const outcome = await request(state, session, ids, work, context, listener(state, run, answer, ended, byTurns));
    if (outcome) return outcome;
    const before = dropped;
    ({
      ids,
      dropped,
      truncated = 0,
    } = promptIds(state.model, prompt, session, { ...prompting, answered: answer.tokens }));
    // The last turn fills the context alone: from here on it loses its middle.
    byTurns = dropped > before;
  }
}

/** What hears the events of a request. @param byTurns whether its outcome is null where the context is full */
const listener =
  (state: HostState, run: Run, answer: Answer, ended: (reason: FinishReason) => Outcome, byTurns: boolean) =>
  (settle: Settle<Outcome | null>): Listener => {
    const { session, settings, constraint, context } = run;
    const hooks = hooksOf(run);
    const sender = new Sender(settle.pause);
    const choose = async ({ request, logits }: { request: number; logits: Float32Array }) => {
      if (constraint && !(await constraint.mask(logits))) return settle.early(() => ended("stop"));
      const changed = await ask(hooks, logits, state.tokens(session));
      // What a processor made possible again stays forbidden.
      if (settings.logitsProcessor) await constraint?.mask(changed);
      state.model.loop.supply(request, changed);
    };
    // The last token that there was room for may be the one that makes the text whole.
    const finish = async (reason: FinishReason) => {
      const length = reason === "length";
      if (length && (await constraint?.done())) return settle.resolve(ended("stop"));
      const full = length && byTurns && answer.tokens.length !== settings.maxTokens;
      settle.resolve(full ? null : ended(reason));
    };
    const onRead = (pieces: number) => {
      context.read = pieces;
      sender.read(pieces);
    };
    onRead(context.read ?? 0);
    context.onStop = () => settle.early(() => ended("stopped"));
    context.onRead = onRead;
    return {
      onEvent(event) {
        if (event.type === "prompt") answer.begun(event.tokens, event.cached);
        else if (event.type === "logprobs") answer.note(event);
        else if (event.type === "token") {
          constraint?.accept(event.token);
          if (answer.token(event.token)) settle.early(() => ended("stop"));
        } else if (event.type === "choose") choose(event).catch(settle.fail);
        else if (event.type === "finished") finish(event.reason as FinishReason).catch(settle.fail);
      },
      onSlice() {
        answer.flush();
        sender.sent(answer.sent);
      },
    };
  };

const hooksOf = ({ settings, context }: Run) => (settings.logitsProcessor ? [remote(context)] : []);

/** The engine's part of the settings. What the caller leaves open the model's own configuration decides, and then the option table. */
function workOf(settings: GenerateSettings & { seed: number }, left: number, text: Text, run: Run): EngineWork {
  const { ignoreEos, onContextFull, maxTokens, seed, ...rest } = settings;
  const {
    stop,
    responseFormat,
    logitsProcessor,
    generationConfig,
    adapters,
    sanitize,
    keepSpecialTokens,
    truncate,
    ...sampling
  } = rest;
  const chosen = {
    ...samplerDefaults,
    ...(generationConfig === "none" ? {} : text.sampling),
    ...defined(sampling),
    seed,
  };
  return {
    type: "generate",
    sampling: flat(chosen, text),
    end: ignoreEos ? [] : [...text.ends],
    full: ["stop", "error", "shift"].indexOf(onContextFull),
    hook: run.constraint !== null || logitsProcessor,
    ...(maxTokens === undefined ? {} : { maxTokens: left }),
  };
}

function defined<T extends object>(options: T): T {
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined)) as T;
}

/** 53 random bits, as many as a number holds exactly. */
function randomSeed(): number {
  const [high, low] = crypto.getRandomValues(new Uint32Array(2)) as unknown as [number, number];
  return (high & 0x1fffff) * 2 ** 32 + low;
}
