/** What a request asks of a model, whatever interface it came by. */

import type { ChatMessage, ChatOptions, Finished, GenerateOptions, Prompt } from "../types/index.ts";

export interface ChatAsk extends Pick<ChatOptions, "tools" | "toolChoice" | "templateOptions"> {
  messages: ChatMessage[];
}

export interface Ask {
  /** The model's name as the client wrote it. */
  model: string;
  /** Several prompts have their answers in one response. */
  prompts: readonly (Prompt | ChatAsk)[];
  /** Without a signal; the seed is that of the first answer to each prompt. */
  options: GenerateOptions;
  /** Answers to each prompt. */
  n: number;
  stream: boolean;
  /** A stream ends with the counts of its tokens. */
  includeUsage: boolean;
  /** Calls of tools are looked for in the answers. */
  calls: boolean;
  /** An answer ends behind its first call. */
  oneCall: boolean;
  /** Answers begin with their prompts. */
  echo: boolean;
  /** The field that holds the prompt, for errors. */
  param: string;
  /** The field that holds the format of the answers, for errors. @default response_format */
  format?: string | undefined;
}

/** What a template is given of a chat. */
export const rendering = ({ messages, ...more }: ChatAsk): [ChatMessage[], Omit<ChatAsk, "messages">] => [
  messages,
  more,
];

/** Whether the context ended an answer before its limit did. */
export const contextFull = ({ options }: Ask, { finishReason, tokens }: Finished): boolean =>
  finishReason === "length" && tokens.length < (options.maxTokens ?? Infinity);

/** Whether the same request gets the same answer again. */
export const repeats = ({ options }: Ask): boolean => options.seed !== undefined || options.temperature === 0;
