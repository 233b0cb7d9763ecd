/** One answer at a time, as a component's state. */

import { useCallback, useEffect, useRef, useState } from "react";
import type { ChatMessage, ChatOptions, Finished, GenerateOptions, Generation, Model, Prompt } from "ternlight";

export interface UseGeneration {
  /** The text so far. It stays until the next answer begins. */
  text: string;
  /** `done` where the answer has ended: by itself, by `stop()`, or because the component has another model. */
  status: "idle" | "running" | "done" | "error";
  /** What the answer ended with, times and calls of tools among it. */
  finished: Finished | null;
  /** Where `status` is `error`. */
  error: unknown;
  /**
   * Continues a text. An answer under way is stopped.
   *
   * @returns what it ends with; null where it fails, as `error` says, or another one takes its place
   */
  generate(prompt: Prompt, options?: GenerateOptions): Promise<Finished | null>;
  /** Answers messages. An answer under way is stopped. */
  chat(messages: readonly ChatMessage[], options?: ChatOptions): Promise<Finished | null>;
  /** Ends the answer normally, with the text so far. */
  stop(): void;
}

type State = Pick<UseGeneration, "text" | "status" | "finished" | "error">;

const IDLE: State = { text: "", status: "idle", finished: null, error: null };

/**
 * Generates with a model of `useTernlight`. When the component is gone, or has another model, the answer is stopped.
 *
 * @param model null until it is loaded
 */
export function useGeneration(model: Model | null): UseGeneration {
  const [state, setState] = useState(IDLE);
  const current = useRef<Generation | null>(null);

  const run = useCallback(async (begin: () => Generation) => {
    current.current?.stop();
    let generation: Generation | null = null;
    const own = (change: Partial<State>) => {
      if (current.current === generation) setState((before) => ({ ...before, ...change }));
    };
    try {
      generation = begin();
      current.current = generation;
      own({ ...IDLE, status: "running" });
      let text = "";
      for await (const piece of generation) {
        if (current.current !== generation) return null;
        text += piece.text;
        own({ text });
      }
      const finished = await generation.finished;
      own({ status: "done", finished, text: finished.text });
      return current.current === generation ? finished : null;
    } catch (error) {
      if (generation === null) current.current = null;
      own({ ...(generation === null && IDLE), status: "error", error });
      return null;
    }
  }, []);

  const stop = useCallback(() => current.current?.stop(), []);
  const generate = useCallback<UseGeneration["generate"]>(
    (prompt, options) => run(() => loaded(model).generate(prompt, options)),
    [model, run],
  );
  const chat = useCallback<UseGeneration["chat"]>(
    (messages, options) => run(() => loaded(model).chat(messages, options)),
    [model, run],
  );
  // Another model ends the answer of this one.
  useEffect(
    () => () => {
      current.current?.stop();
      current.current = null;
      // A component that stays, as in a fast refresh, must not wait for an answer that has ended.
      setState((before) => (before.status === "running" ? { ...before, status: "done" } : before));
    },
    [model],
  );
  return { ...state, generate, chat, stop };
}

export function loaded(model: Model | null): Model {
  if (!model) throw new Error("the model is not loaded yet: wait until useTernlight says that it is ready");
  return model;
}
