/** A language model of the AI SDK, of its specification V3, which `ai` 6 and 7 take. */

import type {
  JSONObject,
  LanguageModelV3,
  LanguageModelV3CallOptions,
  LanguageModelV3Content,
  LanguageModelV3FinishReason,
  LanguageModelV3GenerateResult,
  LanguageModelV3StreamPart,
  LanguageModelV3Usage,
} from "@ai-sdk/provider";
import type { ChatMessage, Finished, Model, Progress } from "ternlight";
import {
  type ChatPartsOptions,
  chatParts,
  eitherSignal,
  type LazyAvailability,
  type LazyModel,
  type LoadCall,
  randomId,
} from "ternlight/integration";
import { toMessages } from "./prompt.ts";
import { type Settings, toSettings } from "./settings.ts";

export interface TernlightLanguageModel extends LanguageModelV3 {
  /** Whether the model can answer here, and whether something has to be downloaded for it. */
  availability(): Promise<LazyAvailability>;
  /** Loads the model ahead of its first call. */
  load(call?: LoadCall): Promise<Model>;
  /** Gives the model's memory back. The next call loads it again. A model that was given loaded stays open. */
  close(): Promise<void>;
}

type Part = LanguageModelV3StreamPart;
type Finish = Extract<Part, { type: "finish" }>;

export function languageModel(handle: LazyModel): TernlightLanguageModel {
  // No class: the SDK calls these methods through proxies, which have no private fields.
  return {
    specificationVersion: "v3",
    provider: "ternlight",
    modelId: handle.name,
    // Nothing is fetched for the model: what a prompt refers to, the SDK brings.
    supportedUrls: {},
    doGenerate: (call) => generated(handle, call),
    async doStream(call) {
      // What cannot be asked rejects here: the SDK tells of that in a part, and of nothing that a stream throws.
      const asked = toAsked(call);
      const abort = new AbortController();
      const given = { ...call, abortSignal: eitherSignal(call.abortSignal, abort.signal) };
      const parts = answer(handle, given, asked, true);
      return { stream: streamOf(parts, abort) };
    },
    availability: handle.availability,
    load: handle.model,
    close: handle.close,
  };
}

/** @param abort ends what a part may still have to wait for */
function streamOf(parts: AsyncGenerator<Part>, abort: AbortController): ReadableStream<Part> {
  return new ReadableStream<Part>({
    async pull(controller) {
      const { done, value } = await parts.next();
      if (done) controller.close();
      else controller.enqueue(value);
    },
    async cancel() {
      abort.abort();
      await parts.return(undefined).catch(() => {});
    },
  });
}

async function generated(handle: LazyModel, call: LanguageModelV3CallOptions): Promise<LanguageModelV3GenerateResult> {
  const result: LanguageModelV3GenerateResult = {
    content: [],
    finishReason: { unified: "other", raw: undefined },
    usage: usageOf(null),
    warnings: [],
  };
  for await (const part of answer(handle, call, toAsked(call), false)) collect(result, part);
  return result;
}

function collect(result: LanguageModelV3GenerateResult, part: Part): void {
  const { content } = result;
  if (part.type === "stream-start") result.warnings = part.warnings;
  else if (part.type === "response-metadata") {
    const { type: _, ...response } = part;
    result.response = response;
  } else if (part.type === "text-start") content.push({ type: "text", text: "" });
  else if (part.type === "text-delta")
    (content.at(-1) as Extract<LanguageModelV3Content, { type: "text" }>).text += part.delta;
  else if (part.type === "tool-call") content.push(part);
  else if (part.type === "finish") {
    const { type: _, ...end } = part;
    Object.assign(result, end);
  }
}

interface Asked extends Settings {
  messages: ChatMessage[];
}

const toAsked = (call: LanguageModelV3CallOptions): Asked => ({
  ...toSettings(call),
  messages: toMessages(call.prompt),
});

/** @param told whether an error is a part of the stream, as the SDK wants it there; otherwise it is thrown */
async function* answer(
  handle: LazyModel,
  call: LanguageModelV3CallOptions,
  { messages, options, warnings }: Asked,
  told: boolean,
): AsyncGenerator<Part, undefined> {
  yield { type: "stream-start", warnings };
  try {
    const { abortSignal: signal } = call;
    const model = yield* loaded(handle, call);
    yield { type: "response-metadata", id: randomId("answer"), timestamp: new Date(), modelId: handle.name };
    yield* written(model, messages, { ...options, signal });
  } catch (error) {
    if (!told || call.abortSignal?.aborted) throw error;
    yield { type: "error", error };
    yield { type: "finish", finishReason: { unified: "error", raw: undefined }, usage: usageOf(null) };
  }
}

/** The model; how far its load is comes as raw parts, where the caller has asked for these. */
async function* loaded(handle: LazyModel, call: LanguageModelV3CallOptions): AsyncGenerator<Part, Model> {
  const { abortSignal: signal, includeRawChunks = false } = call;
  if (!includeRawChunks) return handle.model({ signal });
  let latest: Progress | null = null;
  let wake = () => {};
  const loading = handle.model({
    signal,
    onProgress(progress) {
      latest = progress;
      wake();
    },
  });
  const ended = loading.then(
    () => true,
    () => true,
  );
  for (let over = false; !over; ) {
    const next = new Promise<boolean>((resolve) => {
      wake = () => resolve(false);
    });
    over = latest ? false : await Promise.race([ended, next]);
    if (latest) yield { type: "raw", rawValue: { type: "progress", ...(latest as Progress) } };
    latest = null;
  }
  return loading;
}

/** An answer as parts of the SDK: blocks of text, and calls. */
async function* written(
  model: Model,
  messages: ChatMessage[],
  options: ChatPartsOptions,
): AsyncGenerator<Part, undefined> {
  let block = 0;
  let text: string | null = null;
  let call: { id: string; toolName: string; input: string } | null = null;
  let calls = 0;
  const closed = function* (): Generator<Part> {
    if (text !== null) yield { type: "text-end", id: text };
    if (call) {
      const { id, toolName, input } = call;
      yield { type: "tool-input-end", id };
      // An answer that was cut off in its arguments calls nothing.
      if (isJson(input)) yield { type: "tool-call", toolCallId: id, toolName, input };
    }
    text = call = null;
  };
  for await (const part of chatParts(model, messages, options)) {
    if (part.type === "text") {
      if (text === null) {
        yield* closed();
        text = String(block++);
        yield { type: "text-start", id: text };
      }
      yield { type: "text-delta", id: text, delta: part.text };
    } else if (part.type === "call") {
      yield* closed();
      calls++;
      call = { id: part.id ?? randomId("call"), toolName: part.name, input: "" };
      yield { type: "tool-input-start", id: call.id, toolName: call.toolName };
    } else if (part.type === "arguments") {
      call!.input += part.text;
      yield { type: "tool-input-delta", id: call!.id, delta: part.text };
    } else {
      yield* closed();
      yield finish(part.finished, calls > 0);
    }
  }
}

function finish(finished: Finished, calls: boolean): Finish {
  const { timings, droppedMessages, toolErrors, stopText } = finished;
  const metadata = {
    timings: { ...timings },
    ...(stopText !== undefined && { stopText }),
    ...(droppedMessages !== undefined && { droppedMessages }),
    ...(toolErrors?.length && { toolErrors: toolErrors.map((one) => ({ ...one })) }),
  };
  return {
    type: "finish",
    finishReason: reasonOf(finished, calls),
    usage: usageOf(finished),
    providerMetadata: { ternlight: metadata as JSONObject },
  };
}

/** An answer that ends behind a call because it may have one only was stopped, and is a call. */
function reasonOf({ finishReason: raw }: Finished, calls: boolean): LanguageModelV3FinishReason {
  if (calls && raw !== "length") return { unified: "tool-calls", raw };
  return { unified: raw === "stopped" ? "other" : raw, raw };
}

function usageOf(finished: Finished | null): LanguageModelV3Usage {
  const { promptN, cachedN, recomputedN = 0, predictedN } = finished?.timings ?? {};
  const noCache = promptN === undefined ? undefined : promptN + recomputedN;
  const total = noCache === undefined ? undefined : noCache + cachedN!;
  return {
    inputTokens: { total, noCache, cacheRead: cachedN, cacheWrite: undefined },
    outputTokens: { total: predictedN, text: predictedN, reasoning: undefined },
  };
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}
