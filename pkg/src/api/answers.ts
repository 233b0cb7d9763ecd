/** Requests for answers, of a model or of a session. */

import { toolNamed } from "../options/check.ts";
import { checkIds, checkOptions, defaults, forWorker } from "../options/options.ts";
import { toFormatSpec } from "../options/response_format.ts";
import { Receiver } from "../rpc/backpressure.ts";
import type { Client } from "../rpc/client.ts";
import type { ChatPrompt, ChooseEvent, GenerateSettings, PromptSpec } from "../rpc/protocol.ts";
import { EngineError } from "../types/errors.ts";
import type {
  AdapterUse,
  ChatMessage,
  ChatOptions,
  CompletionOptions,
  Finished,
  GenerateOptions,
  Generation,
  LogitsProcessor,
  Piece,
  Prompt,
} from "../types/index.ts";
import { together } from "./completions.ts";
import { type Feed, GenerationStream } from "./generation.ts";

/** What the public objects of one model share. */
export interface Caller {
  client: Client;
  /** Resolves with the next frame that is shown; absent where nothing is. */
  frame: (() => Promise<void>) | undefined;
  /** Returns a number that no other session of the model has. */
  fresh(): number;
}

export interface Conversation {
  session: number;
  /** Receives the ids that the session holds after a generation, and what that ended with. */
  onHeld(held: readonly number[], finished: Finished): void;
  /** The generation failed: the ids that the session holds are not known. */
  onFailed(): void;
  /** Adapters for a call that names none; undefined where the engine's session has its own. */
  adapters: readonly AdapterUse[] | undefined;
}

export function generate(
  caller: Caller,
  conversation: Conversation | null,
  prompt: Prompt,
  given: GenerateOptions & CompletionOptions,
): Generation {
  const options = checkOptions(conversation ? "generate" : "complete", given, "generate");
  const { addSpecial = defaults.addSpecial } = options;
  if (Array.isArray(prompt) && typeof prompt[0] === "object")
    throw new EngineError("InvalidArgument", "generate: prompt is a list of messages, which chat() takes", {
      option: "prompt",
      expected: "a text or a list of token ids",
    });
  const spec =
    typeof prompt === "string"
      ? { text: prompt, addSpecial }
      : { ids: checkIds("generate", prompt, "prompt", "a text or a list of token ids") };
  return start(caller, conversation, spec, options);
}

/** @param messages that were checked */
export function chat(
  caller: Caller,
  conversation: Conversation | null,
  messages: ChatMessage[],
  given: ChatOptions & CompletionOptions,
): Generation {
  const options = checkOptions(conversation ? "chat" : "completeChat", given, "chat");
  return start(caller, conversation, chatPrompt("chat", messages, options), options);
}

/** Messages as they cross to the worker. */
export function chatPrompt(name: string, messages: ChatMessage[], options: ChatOptions): ChatPrompt {
  const { tools, toolChoice = defaults.toolChoice, templateOptions, parseSpecialTokens } = options;
  const spec: ChatPrompt = { messages };
  if (tools && toolChoice !== "none") spec.tools = [...tools];
  if (toolChoice !== "auto" && toolChoice !== "none") {
    const option = "toolChoice";
    const reason = options.responseFormat ? "and responseFormat are two formats" : "needs tools";
    if (options.responseFormat || !tools)
      throw new EngineError("InvalidArgument", `${name}: ${option} ${reason}`, { option });
    spec.toolChoice = toolChoice === "required" ? toolChoice : { name: toolNamed(toolChoice)! };
  }
  if (templateOptions) spec.templateOptions = { ...templateOptions };
  if (parseSpecialTokens) spec.parseSpecialTokens = true;
  return spec;
}

function start(
  { client, frame }: Caller,
  conversation: Conversation | null,
  prompt: PromptSpec,
  options: GenerateOptions & CompletionOptions,
): Generation {
  const {
    stop = [],
    ignoreEos = defaults.ignoreEos,
    onContextFull = defaults.onContextFull,
    responseFormat,
    logitsProcessor,
    signal,
    n = defaults.n,
    adapters = conversation?.adapters,
    pieces = frame ? "joined" : "token",
  } = options;
  const format = responseFormat && toFormatSpec(responseFormat);
  const settings: GenerateSettings = {
    ...forWorker(options),
    stop: typeof stop === "string" ? [stop] : [...stop],
    ignoreEos,
    onContextFull,
    ...(format ? { responseFormat: format } : {}),
    ...(adapters ? { adapters } : {}),
    sanitize: options.sanitize ?? false,
    logitsProcessor: logitsProcessor !== undefined,
  };
  const session = conversation?.session ?? null;
  const begin = (settings: GenerateSettings, push: (pieces: Piece[]) => void): Feed => {
    const receiver = new Receiver();
    const onEvent = (event: Piece[] | ChooseEvent, id: number) => {
      if (!Array.isArray(event)) return choose(client, id, event, logitsProcessor!);
      push(event);
      receiver.received(event.length);
      client.idle(id, receiver.idle);
    };
    const { id, result } = client.start("generate", { session, prompt, settings }, { signal, onEvent });
    const finished = result.then(
      (ended) => {
        conversation?.onHeld(ended.held, ended.finished);
        return ended.finished;
      },
      (reason) => {
        conversation?.onFailed();
        throw reason;
      },
    );
    const onRead = (pieces: number) => {
      client.read(id, pieces);
      receiver.read(pieces);
      client.idle(id, receiver.idle);
    };
    return { finished, stop: () => client.stop(id), read: onRead, signal };
  };
  return new GenerationStream(
    (push) => (n === 1 ? begin(settings, push) : together(n, settings, begin, push)),
    pieces === "joined" ? (frame ?? (() => Promise.resolve())) : null,
  );
}

/** Lets the caller's function change the logits of a generation that waits for them. */
async function choose(client: Client, id: number, { logits, tokens }: ChooseEvent, processor: LogitsProcessor) {
  const { length } = logits;
  const changed = (await processor(logits, tokens)) ?? logits;
  // An array that was transferred elsewhere has length 0.
  if (!(changed instanceof Float32Array) || changed.length !== length) {
    const expected = `nothing or a Float32Array of ${length} values`;
    const message = `logitsProcessor must answer ${expected}, and keep what it was given in place`;
    throw new EngineError("InvalidArgument", message, { option: "logitsProcessor", expected });
  }
  client.supply(id, changed, changed === logits ? [logits.buffer as ArrayBuffer] : []);
}
