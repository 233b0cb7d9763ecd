/** Sessions: conversations that keep what was computed. */

import type { AdapterUse } from "./adapters.ts";
import type { ChatMessage, ChatOptions } from "./chat.ts";
import type { GenerateOptions, Generation, Prompt } from "./generate.ts";
import type { AsyncDispose } from "./web.ts";

export interface SessionOptions {
  /** The adapters that the session begins with. @default none */
  adapters?: readonly AdapterUse[] | undefined;
}

/** A conversation that keeps its tokens, keys and values between generations. One generation runs in it at a time. */
export interface Session extends AsyncDispose {
  /**
   * Continues the conversation with a prompt and an answer. What the session holds is not computed again.
   *
   * @throws {EngineError} at once: `Closed`, and `InvalidArgument` for an option or a prompt that is wrong; other errors reject the
   *   generation, as on a model
   */
  generate(prompt: Prompt, options?: GenerateOptions): Generation;
  /**
   * Continues the conversation by messages, and remembers them with the answer. Later messages of users and tools are new ones, which
   * are appended. Messages that repeat the conversation from its beginning must be the same; only what follows is new, and may be
   * nothing where `rewind` has forgotten the last answer. What the session holds already is not computed again. An answer that fails
   * leaves no message.
   *
   * @param messages the new messages, or the whole conversation
   * @throws {EngineError} as `generate`; `InvalidArgument` also for messages that contradict those of the session (a system message or
   *   an assistant's which it does not have), with the place of the first in `detail.message`, for none behind the session's own answer,
   *   and for a session that `generate` has continued, whose text is in no message
   * @example
   * ```ts
   * import { load } from "ternlight";
   * import demo from "ternlight/demo";
   *
   * // The demo model has no template of its own.
   * const chatTemplate = "{% for message in messages %}{{ message.content }}{% endfor %}";
   * const model = await load(demo, { chatTemplate });
   * const session = model.session();
   * await session.chat([{ role: "user", content: "Tell me of a king." }], { maxTokens: 16 }).text();
   * await session.chat([{ role: "user", content: " And of his sons." }], { maxTokens: 16 }).text();
   * console.log(session.messages?.map(({ role }) => role).join(", "));
   * await model.close();
   * ```
   */
  chat(messages: readonly ChatMessage[], options?: ChatOptions): Generation;
  /** The messages of the chat, the answers among them; null where `generate` has continued the conversation. */
  readonly messages: readonly ChatMessage[] | null;
  /** Every id that the conversation holds. After a generation that failed, it is right as soon as the engine has answered. */
  readonly tokens: readonly number[];
  /**
   * Makes another session that begins with all that this one holds. Nothing is computed or copied for it.
   *
   * @throws {EngineError} `Closed`
   */
  fork(): Promise<Session>;
  /**
   * Forgets the last tokens. Of a chat the messages that lose a token are forgotten as well.
   *
   * @param count how many, at most all
   * @throws {EngineError} `InvalidArgument` for another number, `Closed`
   */
  rewind(count: number): Promise<void>;
  /**
   * Saves all that the session holds, messages, keys and values included, for `model.restoreSession(bytes)` of the same model with the
   * same `kvCacheType` and `activations`, in any runtime.
   *
   * @returns about as many bytes as the session's share of the KV cache
   * @throws {EngineError} `Closed`
   */
  save(): Promise<Uint8Array<ArrayBuffer>>;
  /** Gives the session's memory back. A generation that is under way in it is rejected (`Closed`). Calling it again does nothing. */
  close(): Promise<void>;
}
