/** `useChat` without a server. */

import {
  type ChatTransport,
  convertToModelMessages,
  createUIMessageStream,
  stepCountIs,
  streamText,
  type ToolSet,
  type UIMessage,
  type UIMessageChunk,
} from "ai";
import type { Progress } from "ternlight";
import type { TernlightLanguageModel } from "./language_model.ts";

type Settings = Pick<
  Parameters<typeof streamText>[0],
  | "maxOutputTokens"
  | "temperature"
  | "topP"
  | "topK"
  | "presencePenalty"
  | "frequencyPenalty"
  | "stopSequences"
  | "seed"
  | "toolChoice"
  | "providerOptions"
>;

export interface TernlightChatTransportOptions extends Settings {
  /** What answers: `ternlight(source)`. It is loaded at the first message. */
  model: TernlightLanguageModel;
  /** The system message of every conversation. @default none */
  system?: string | undefined;
  /** Tools that the model may call; those with `execute` run here. @default none */
  tools?: ToolSet | undefined;
  /** The most answers in a row, calls of tools between them. @default 5 */
  maxSteps?: number | undefined;
}

/**
 * Answers the messages of `useChat` in this page. While the model is loaded, how far that is comes as data parts of type
 * `data-progress`, which `onData` of `useChat` hears of and which stay in no message.
 */
export class TernlightChatTransport<Message extends UIMessage = UIMessage> implements ChatTransport<Message> {
  readonly #options: TernlightChatTransportOptions;

  constructor(options: TernlightChatTransportOptions) {
    this.#options = options;
  }

  async sendMessages({
    messages,
    abortSignal,
  }: Parameters<ChatTransport<Message>["sendMessages"]>[0]): Promise<ReadableStream<UIMessageChunk>> {
    const { model, tools, maxSteps = 5, system, ...settings } = this.#options;
    const onError = (error: unknown) => (error instanceof Error ? error.message : String(error));
    return createUIMessageStream({
      onError,
      async execute({ writer }) {
        const onProgress = (data: Progress) => writer.write({ type: "data-progress", data, transient: true });
        await model.load({ signal: abortSignal, onProgress });
        const result = streamText({
          ...settings,
          model,
          messages: await convertToModelMessages(messages, tools && { tools }),
          stopWhen: stepCountIs(maxSteps),
          ...(system !== undefined && { system }),
          ...(tools && { tools }),
          ...(abortSignal && { abortSignal }),
        });
        writer.merge(result.toUIMessageStream({ onError }));
      },
    });
  }

  /** What runs in a page ends with it: there is nothing to go on with. */
  async reconnectToStream(): Promise<null> {
    return null;
  }
}
