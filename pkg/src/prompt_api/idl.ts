/** The dictionaries of the Prompt API, as its specification has them. */

export type LanguageModelSamplingMode =
  | "most-predictable"
  | "predictable"
  | "slightly-predictable"
  | "balanced"
  | "slightly-creative"
  | "creative"
  | "most-creative";
export type LanguageModelRole = "system" | "user" | "assistant";
export type LanguageModelMessageType = "text" | "image" | "audio" | "tool-call" | "tool-response";

export interface LanguageModelMessageContent {
  type: LanguageModelMessageType;
  value: unknown;
}

export interface LanguageModelMessage {
  role: LanguageModelRole;
  content: string | readonly LanguageModelMessageContent[];
  /** The answer goes on from this text. Of an assistant's message, the last one. @default false */
  prefix?: boolean | undefined;
}

export type LanguageModelPrompt = string | readonly LanguageModelMessage[];

export interface LanguageModelTool {
  name: string;
  description: string;
  /** A JSON schema of what `execute` is called with. */
  inputSchema: object;
  execute(input: Record<string, unknown>): Promise<string>;
}

export interface LanguageModelExpected {
  type: LanguageModelMessageType;
  languages?: readonly string[] | undefined;
}

export interface LanguageModelCreateCoreOptions {
  topK?: number | undefined;
  temperature?: number | undefined;
  samplingMode?: LanguageModelSamplingMode | "default" | undefined;
  expectedInputs?: readonly LanguageModelExpected[] | undefined;
  expectedOutputs?: readonly LanguageModelExpected[] | undefined;
  tools?: readonly LanguageModelTool[] | undefined;
}

export interface LanguageModelCreateOptions extends LanguageModelCreateCoreOptions {
  signal?: AbortSignal | undefined;
  /** Is given what fires `downloadprogress`, with `loaded` from 0 to 1. */
  monitor?: ((monitor: EventTarget & { ondownloadprogress: ((event: Event) => void) | null }) => void) | undefined;
  initialPrompts?: readonly LanguageModelMessage[] | undefined;
}

export interface LanguageModelPromptOptions {
  /** A JSON schema or a regular expression that the whole answer keeps to. */
  responseConstraint?: object | undefined;
  omitResponseConstraintInput?: boolean | undefined;
  signal?: AbortSignal | undefined;
}

export interface LanguageModelParams {
  readonly defaultTopK: number;
  readonly maxTopK: number;
  readonly defaultTemperature: number;
  readonly maxTemperature: number;
}

/** What the static side of `LanguageModel` has. */
export interface LanguageModelStatic {
  readonly prototype: LanguageModel;
  create(options?: LanguageModelCreateOptions): Promise<LanguageModel>;
  availability(
    options?: LanguageModelCreateCoreOptions,
  ): Promise<"unavailable" | "downloadable" | "downloading" | "available">;
  params(): Promise<LanguageModelParams>;
}

/** A conversation with the model. */
export interface LanguageModel extends EventTarget {
  prompt(input: LanguageModelPrompt, options?: LanguageModelPromptOptions): Promise<string>;
  promptStreaming(input: LanguageModelPrompt, options?: LanguageModelPromptOptions): ReadableStream<string>;
  append(input: LanguageModelPrompt, options?: { signal?: AbortSignal | undefined }): Promise<undefined>;
  measureContextUsage(input: LanguageModelPrompt, options?: LanguageModelPromptOptions): Promise<number>;
  readonly contextUsage: number;
  readonly contextWindow: number;
  oncontextoverflow: ((event: Event) => void) | null;
  /** null where `topK` or `temperature` was given. */
  readonly samplingMode: LanguageModelSamplingMode | null;
  clone(options?: { signal?: AbortSignal | undefined }): Promise<LanguageModel>;
  destroy(): undefined;
  /** Earlier names of the four above. */
  measureInputUsage(input: LanguageModelPrompt, options?: LanguageModelPromptOptions): Promise<number>;
  readonly inputUsage: number;
  readonly inputQuota: number;
  onquotaoverflow: ((event: Event) => void) | null;
  readonly topK: number;
  readonly temperature: number;
}
