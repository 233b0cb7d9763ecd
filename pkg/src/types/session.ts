/** Sessions: conversations that keep what was computed. */

import type { AdapterUse } from "./adapters.ts";
import type { ChatMessage, ChatOptions } from "./chat.ts";
import type { GenerateOptions, Generation, Prompt } from "./generate.ts";

export interface SessionOptions {
  /**
   * The bytes from `session.save()`. They are refused with `BadMagic` (no saved session), `Damaged`, `UnsupportedVersion` or
   * `WrongModel`, also where the session was saved with other adapters.
   * @default none
   */
  restore?: Uint8Array | undefined;
  /** The adapters that the session begins with. @default none */
  adapters?: readonly AdapterUse[] | undefined;
}

/** A conversation that keeps its tokens, keys and values between generations. One generation runs in it at a time. */
export interface Session {
  /**
   * Continues the conversation with a prompt and an answer. What the session holds is not computed again.
   *
   * @throws {EngineError} at once: `Closed`, and `InvalidArgument` for an option or a prompt that is wrong; other errors reject the
   *   generation, as on a model
   */
  generate(prompt: Prompt, options?: GenerateOptions): Generation;
  /**
   * Continues the conversation by messages. The messages repeat the whole conversation; what the session holds of it already is not
   * computed again.
   *
   * @throws {EngineError} as `generate`
   */
  chat(messages: readonly ChatMessage[], options?: ChatOptions): Generation;
  /** Every id that the conversation holds. After a generation that failed, it is right as soon as the engine has answered. */
  readonly tokens: readonly number[];
  /**
   * Makes another session that begins with all that this one holds. Nothing is computed or copied for it.
   *
   * @throws {EngineError} `Closed`
   */
  fork(): Promise<Session>;
  /**
   * Forgets the last tokens.
   *
   * @param count how many, at most all
   * @throws {EngineError} `InvalidArgument` for another number, `Closed`
   */
  rewind(count: number): Promise<void>;
  /**
   * Saves all that the session holds, keys and values included, for `model.session({ restore })` of the same model with the same
   * `kvCacheType` and `activations`, in any runtime.
   *
   * @returns about as many bytes as the session's share of the KV cache
   * @throws {EngineError} `Closed`
   */
  save(): Promise<Uint8Array>;
  /** Gives the session's memory back. A generation that is under way in it is rejected (`Closed`). Calling it again does nothing. */
  close(): Promise<void>;
}
