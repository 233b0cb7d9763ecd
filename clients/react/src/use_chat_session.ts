/** A conversation as a component's state. What was computed of it is kept in a session of the engine. */

import { useCallback, useEffect, useRef, useState, useSyncExternalStore } from "react";
import type { ChatMessage, ChatOptions, Finished, Model } from "ternlight";
import { Talk } from "./talk.ts";

export interface ChatSessionOptions extends Omit<ChatOptions, "signal"> {
  /** The system message. It counts from the next conversation on. @default none */
  system?: string | undefined;
  /** Messages that the first conversation begins with. @default none */
  initialMessages?: readonly ChatMessage[] | undefined;
}

export interface ChatSession {
  /** The conversation, with the answer as it is being written. */
  messages: readonly ChatMessage[];
  status: "idle" | "running" | "error";
  /** Where `status` is `error`. The answer that failed is no message; `regenerate()` asks for it again. */
  error: unknown;
  /** What the last answer ended with, times and calls of tools among it. */
  finished: Finished | null;
  /**
   * Says something and has it answered: a text of the user's, or messages, results of tools for example. An answer under way is stopped
   * first.
   *
   * @returns what the answer ends with; null where it fails, as `error` says, or another conversation or model takes its place
   */
  send(content: string | readonly ChatMessage[], options?: ChatOptions): Promise<Finished | null>;
  /** Has the last message that is no answer answered again. */
  regenerate(options?: ChatOptions): Promise<Finished | null>;
  /** Ends the answer normally, with the text so far. */
  stop(): void;
  /** Begins another conversation. */
  reset(messages?: readonly ChatMessage[]): void;
}

/**
 * A conversation with a model of `useTernlight`. When the component is gone, or has another model, the answer is stopped and the
 * session closed; the messages stay for the other model.
 *
 * @param model null until it is loaded
 */
export function useChatSession(model: Model | null, options: ChatSessionOptions = {}): ChatSession {
  const [talk] = useState(() => new Talk(begun(options)));
  const state = useSyncExternalStore(talk.subscribe, talk.state, talk.state);
  const latest = useRef(options);
  useEffect(() => {
    latest.current = options;
  });
  // Another model ends the session of this one.
  useEffect(() => talk.end, [model, talk]);

  const send = useCallback<ChatSession["send"]>(
    (content, own) => {
      const said = typeof content === "string" ? [{ role: "user", content }] : content;
      return talk.ask(model, (messages) => [...messages, ...said], chatOptions(latest.current, own));
    },
    [model, talk],
  );
  const regenerate = useCallback<ChatSession["regenerate"]>(
    (own) => talk.ask(model, unanswered, chatOptions(latest.current, own)),
    [model, talk],
  );
  const reset = useCallback<ChatSession["reset"]>(
    (messages) => talk.reset(messages ?? begun({ ...latest.current, initialMessages: undefined })),
    [talk],
  );
  return { ...state, send, regenerate, stop: talk.stop, reset };
}

function begun({ system, initialMessages = [] }: ChatSessionOptions): readonly ChatMessage[] {
  return [...(system === undefined ? [] : [{ role: "system", content: system }]), ...initialMessages];
}

function chatOptions(
  { system: _, initialMessages: __, ...options }: ChatSessionOptions,
  own?: ChatOptions,
): ChatOptions {
  return { ...options, ...own };
}

/** The messages up to the last one that is no answer. */
function unanswered(messages: readonly ChatMessage[]): readonly ChatMessage[] {
  return messages.slice(0, messages.findLastIndex(({ role }) => role !== "assistant") + 1);
}
