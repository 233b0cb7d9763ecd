/** The conversation behind `useChatSession`: an external store for React, and a session of the engine. */

import type { ChatMessage, ChatOptions, Finished, Generation, Model, Session } from "ternlight";
import { loaded } from "./use_generation.ts";

export interface TalkState {
  readonly messages: readonly ChatMessage[];
  readonly status: "idle" | "running" | "error";
  readonly error: unknown;
  readonly finished: Finished | null;
}

export class Talk {
  #state: TalkState;
  readonly #listeners = new Set<() => void>();
  #model: Model | null = null;
  #session: Session | null = null;
  /** The messages that the session holds. */
  #held: readonly ChatMessage[] = [];
  #generation: Generation | null = null;
  /** Settles when the answer under way, and those that wait for it, have ended. */
  #running: Promise<unknown> = Promise.resolve();
  /** Counts stops: they also end the answers that have not begun. */
  #stops = 0;
  /** Counts conversations: an answer that belongs to an earlier one shows nothing any more. */
  #conversation = 0;

  constructor(messages: readonly ChatMessage[]) {
    this.#state = { messages, status: "idle", error: null, finished: null };
  }

  readonly subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  };

  readonly state = (): TalkState => this.#state;

  readonly stop = (): void => {
    this.#stops++;
    this.#generation?.stop();
  };

  /**
   * Stops the answer under way and has another one behind it.
   *
   * @param next what is to be answered, from the messages so far
   */
  ask(
    model: Model | null,
    next: (messages: readonly ChatMessage[]) => readonly ChatMessage[],
    options: ChatOptions,
  ): Promise<Finished | null> {
    this.stop();
    const [stops, conversation] = [this.#stops, this.#conversation];
    const answer = this.#running.then(() => {
      if (conversation !== this.#conversation) return null;
      const answered = this.#answer(model, next(this.#state.messages), options);
      // Who stops it before it has begun means it as who stops it before its first word.
      if (stops !== this.#stops) this.#generation?.stop();
      return answered;
    });
    this.#running = answer.catch(() => null);
    return answer;
  }

  async #answer(model: Model | null, messages: readonly ChatMessage[], options: ChatOptions) {
    const conversation = this.#conversation;
    const show = (change: Partial<TalkState>) => conversation === this.#conversation && this.#set(change);
    show({ messages, status: "running", error: null, finished: null });
    try {
      const session = this.#sessionFor(loaded(model), messages);
      this.#generation = session.chat(messages, options);
      let text = "";
      for await (const piece of this.#generation) {
        text += piece.text;
        show({ messages: [...messages, { role: "assistant", content: text }] });
      }
      const finished = await this.#generation.finished;
      const held = session.messages ?? [];
      if (session === this.#session) this.#held = held;
      show({ messages: held, status: "idle", finished });
      return finished;
    } catch (error) {
      if (conversation === this.#conversation) this.#drop();
      show({ messages, status: "error", error });
      return null;
    } finally {
      this.#generation = null;
    }
  }

  /** Begins another conversation. */
  reset(messages: readonly ChatMessage[]): void {
    this.end();
    this.#set({ messages, status: "idle", error: null, finished: null });
  }

  /** Stops the answer and closes the session. The messages stay. */
  readonly end = (): void => {
    this.#conversation++;
    this.stop();
    this.#drop();
    if (this.#state.status === "running") this.#set({ status: "idle" });
  };

  /** The session goes on where the messages do; where they say otherwise, another one begins. */
  #sessionFor(model: Model, messages: readonly ChatMessage[]): Session {
    const goesOn = model === this.#model && this.#held.every((message, i) => message === messages[i]);
    if (!goesOn) this.#drop();
    this.#model = model;
    this.#session ??= model.session();
    return this.#session;
  }

  #drop(): void {
    void this.#session?.close().catch(() => {});
    this.#session = null;
    this.#held = [];
  }

  #set(change: Partial<TalkState>): void {
    this.#state = { ...this.#state, ...change };
    for (const listener of [...this.#listeners]) listener();
  }
}
