/** Generations: their options, their pieces, and what they end with. */

import type { AdapterUse } from "./adapters.ts";
import type { LogitsProcessor, SamplingOptions } from "./sampling.ts";
import type { ToolCall, ToolError } from "./tools.ts";
import type { AbortSignal } from "./web.ts";

/** Token ids, as a list or as a typed array. */
export type TokenIds = readonly number[] | Uint32Array | Int32Array;

/** Text, or token ids that are fed exactly as given. */
export type Prompt = string | TokenIds;

/**
 * What happens when a conversation has filled its context. `stop` ends the answer with `finishReason: "length"`; `error` ends it with a
 * `ContextFull`. `shift` continues. Of a chat the oldest turns go, whole turns with their answers, and never the system message or the
 * last turn; `finished.droppedMessages` counts them. Of a text, or where the last turn alone is too long, the first 32 tokens (at most
 * an eighth of the context) and the latest half of the context stay. What stays is computed anew at its new positions, exactly as if
 * it had been the prompt. With `shift`, a prompt that is longer than the context is shortened in the same way; otherwise it is an error.
 */
export type ContextFull = "stop" | "error" | "shift";

/** The side on which a prompt that is too long loses tokens; `none` leaves it as it is. */
export type Truncate = "none" | "left" | "right" | "middle";

export interface GenerateOptions extends SamplingOptions {
  /** The most tokens of the answer. @default until the model ends or the context is full */
  maxTokens?: number | undefined;
  /**
   * Texts that end the generation: at most 64, each of 1 to 1,024 characters. They may span pieces and are not part of the answer's text.
   * @default none
   */
  stop?: string | readonly string[] | undefined;
  /** Continues past the model's end tokens. @default false */
  ignoreEos?: boolean | undefined;
  /** Keeps special tokens in the answer's text. @default false */
  keepSpecialTokens?: boolean | undefined;
  /** Adds what the tokenizer adds to a text (BOS). Has no effect on ids and chats. @default true */
  addSpecial?: boolean | undefined;
  /** What happens when the context is full. @default "stop" */
  onContextFull?: ContextFull | undefined;
  /**
   * Where a prompt that is longer than its context loses tokens; otherwise that is a `ContextFull`, or as `onContextFull` says. What is left
   * leaves room for `maxTokens`, at most a quarter of the context. A first token that begins every text (BOS) stays. Of messages the rendered
   * tokens are cut, the template's among them: `onContextFull: "shift"` leaves out whole turns instead.
   * @default "none"
   */
  truncate?: Truncate | undefined;
  /**
   * The format of the answer: each token is chosen among those that can still lead to a complete text of this format. The answer ends by
   * itself, with `finishReason: "stop"`, where nothing more may follow; `maxTokens` may end it before it is complete.
   * @default any text
   */
  responseFormat?: ResponseFormat | undefined;
  /**
   * Removes soft hyphens, zero-width spaces and joiners and variation selectors from a text or from messages, and leaves the first of
   * several emoji in a row, one of several spaces, one of several blank lines. This changes the prompt: an indent is gone. Ids stay as
   * they are.
   * @default false
   */
  sanitize?: boolean | undefined;
  /** How tokens become pieces. @default "joined" in a page, "token" elsewhere */
  pieces?: Pieces | undefined;
  /** Changes the logits before every choice. @default none */
  logitsProcessor?: LogitsProcessor | undefined;
  /**
   * The adapters of this answer. A session keeps those of its last call by default; with other ones, all that it holds is computed again.
   * @default none
   */
  adapters?: readonly AdapterUse[] | undefined;
  /** Aborts the generation: iteration and `finished` reject with the signal's reason. */
  signal?: AbortSignal | undefined;
}

/**
 * `token` gives each token's text as a piece of its own. `joined` gives all that has come since the last piece as one; in a page, at
 * most one in each frame, because a page that renders more often than it is shown takes the time from the engine.
 */
export type Pieces = "token" | "joined";

/**
 * `"json"` is any JSON object. A JSON schema that could only be followed approximately is refused (`not`, `uniqueItems`, a `oneOf` whose
 * options overlap). A regular expression is JavaScript's without look-around, back-references and word boundaries, and matches the
 * whole text; a string is read as with the flag `u`. A grammar is in Lark's syntax as llguidance reads it, from the rule `start`.
 * OpenAI's shapes are understood: `json_object` is `"json"`, `text` is any text.
 */
export type ResponseFormat =
  | "json"
  | { type: "text" | "json_object" }
  | { type: "json_schema"; schema: object | true }
  | { type?: "json_schema"; json_schema: { schema: object | true } }
  | { type: "regex"; pattern: string | RegExp }
  | { type: "grammar"; grammar: string };

/** Options of `generate` and `chat` on a model. Sessions do not have them: a session continues in one way, and forks. */
export interface CompletionOptions {
  /**
   * Completions of the one prompt, side by side. The prompt's whole blocks of 32 tokens are computed once. Pieces then tell to which
   * completion they belong (`index`), `finished` has all of them (`choices`), and the one at `index` has the seed `seed + index`.
   * @default 1 answer
   */
  n?: number | undefined;
}

/** A part of an answer: of one token, or of several where they are joined. */
export interface Piece {
  /** Whole characters only. Empty only where a token adds no text of its own. */
  text: string;
  /** The ids of this text. */
  tokens: number[];
  /** The completion that it belongs to, where `n` asked for several. */
  index?: number;
  /** One entry for each id, where `logprobs` asked for them. */
  logprobs?: TokenLogprobs[];
}

/** Natural logarithms of probabilities by the model's own logits: before `logitsProcessor`, penalties and temperature. */
export interface TokenLogprobs {
  token: number;
  logprob: number;
  /** The most likely tokens, in order. */
  top: { token: number; logprob: number }[];
}

/**
 * `stop`: the model ended, or a stop text or a format did. `length`: `maxTokens` or the context ended it. `stopped`: the caller did, by
 * `stop()` or by leaving the loop. An abort by `signal` is none of these: it rejects.
 */
export type FinishReason = "stop" | "length" | "stopped";

/** Counts and times of a generation. */
export interface Timings {
  /** Prompt tokens that were computed. */
  promptN: number;
  /** Tokens before the answer that did not need to be: the session's, or whole blocks of 32 from a conversation that began alike. */
  cachedN: number;
  /**
   * Tokens of the session that were computed again, where there are any: what a saved session holds behind its last whole block of 32,
   * what gave its room to others, and the last token of an answer, which nobody had read yet. With `promptN` and `cachedN` it adds up to
   * all tokens before the answer.
   */
  recomputedN?: number;
  /** Milliseconds from the call to the first token. */
  promptMs: number;
  /** Of all tokens that were computed, those of `recomputedN` too. */
  promptPerSecond: number;
  /** Tokens of the answer. */
  predictedN: number;
  /** Milliseconds from the first token to the last. */
  predictedMs: number;
  predictedPerSecond: number;
  /** Milliseconds from the call to the first token. */
  ttftMs: number;
}

/** What a generation ends with. */
export interface Finished {
  text: string;
  /** Generated ids, without the one that ended it. */
  tokens: number[];
  /** The prompt's ids as fed, BOS included. */
  promptTokens: number[];
  finishReason: FinishReason;
  /** The stop text that ended it. */
  stopText?: string;
  /** How many tokens of the prompt `truncate` has left out; of more than 262,144 characters, those that were read for it. */
  truncatedTokens?: number;
  /** How many of the oldest messages were left out to make room, with `onContextFull: "shift"`. */
  droppedMessages?: number;
  /** One entry for each of `tokens`, where `logprobs` asked for them. */
  logprobs?: TokenLogprobs[];
  /** The share of runs of three tokens that the answer had before, see `repetitionScore`. */
  repetitionScore: number;
  timings: Timings;
  /** All completions, where `n` asked for several; the other fields are those of the first. */
  choices?: Finished[];
  /** The calls in the answer, in order, where a chat was given tools. They stay in the text, too. */
  toolCalls?: ToolCall[];
  /** What was meant as a call, but is malformed or names no tool of the chat. */
  toolErrors?: ToolError[];
}

/**
 * An answer that is being written. It is read once: by `for await`, `text()`, `textStream()` or `toReadableStream()`. It is no promise:
 * awaited, it is still the answer that is being written; `await generation.text()` is its text. A reader that is slower than the
 * model slows this answer alone: with 256 pieces unread it pauses, other answers take its place, and it continues when half of them are
 * read.
 */
export interface Generation extends AsyncIterable<Piece> {
  /**
   * Settles when the generation has ended. Asking for it lifts the limit of unread pieces, so that it settles without a reader. It
   * never causes an unhandled rejection by itself.
   */
  readonly finished: Promise<Finished>;
  /** Ends the generation normally, with the text so far and `finishReason: "stopped"`. */
  stop(): void;
  /**
   * Reads all pieces.
   *
   * @returns the whole text
   * @throws {EngineError} `InvalidArgument` where it is being read already; and what ended the generation
   */
  text(): Promise<string>;
  /**
   * Reads the pieces as a web stream. Cancelling the stream stops the generation.
   *
   * @throws {EngineError} `InvalidArgument`, from the stream, where it is being read already
   */
  toReadableStream(): ReadableStream<Piece>;
  /**
   * Reads the text as a stream of UTF-8 bytes, which `new Response(…)` takes. Cancelling the stream stops the generation. Of several
   * completions it is the first.
   *
   * @throws {EngineError} `InvalidArgument`, from the stream, where it is being read already
   * @example
   * ```ts
   * import { load } from "ternlight";
   * import demo from "ternlight/demo";
   *
   * const model = await load(demo);
   * const response = new Response(model.generate("Once upon a time", { maxTokens: 32 }).textStream());
   * console.log(await response.text());
   * await model.close();
   * ```
   */
  textStream(): ReadableStream<Uint8Array<ArrayBuffer>>;
}
