/** The owner's end: promises and events by request id. */

import { EngineError } from "../types/errors.ts";
import type { WorkerPort } from "./port.ts";
import type { ErrorData, Reply, VerbName, Verbs } from "./protocol.ts";
import { ThreadWatch } from "./thread_watch.ts";
import { show } from "./user_timing.ts";
import { Watch } from "./watch.ts";

export interface CallOptions<V extends VerbName> {
  signal?: AbortSignal | undefined;
  /** What it throws, or rejects with, is the call's end. */
  onEvent?: (event: Verbs[V]["event"], id: number) => unknown;
  /** Hears of a result that came after an abort. */
  onLate?: (result: Verbs[V]["result"]) => void;
}

interface Pending {
  resolve(result: unknown): void;
  reject(reason: unknown): void;
  onEvent?: ((event: never, id: number) => unknown) | undefined;
  /** Nobody waits for it. */
  idle: boolean;
  /** What is measured is not interrupted, for seconds on a slow machine. */
  quiet: boolean;
}

export interface RunningCall<T> {
  id: number;
  result: Promise<T>;
}

export class Client {
  readonly #port: WorkerPort;
  readonly #watch: Watch;
  readonly #threads = new ThreadWatch(() =>
    this.#end(new EngineError("WorkerFailed", "a thread of the engine's has ended by itself")),
  );
  readonly #pending = new Map<number, Pending>();
  readonly #late = new Map<number, (result: never) => void>();
  /** Calls by their signals: one listener each, as Node warns of many. */
  readonly #signals = new Map<AbortSignal, { aborts: Set<() => void>; listener: () => void }>();
  #next = 0;
  /** Why nothing can be asked any more. */
  #over: EngineError | null = null;
  #ended: unknown = null;

  constructor(port: WorkerPort) {
    this.#port = port;
    const hangs = (seconds: number) =>
      this.#end(new EngineError("WorkerFailed", `the engine's worker has not said a word for ${seconds} s`));
    this.#watch = new Watch(() => port.post({ id: 0, control: "ping" }), hangs, port.patience);
    port.onmessage = (message) => this.#receive(message as Reply);
    port.onerror = (cause) =>
      this.#end(new EngineError("WorkerFailed", `the engine's worker failed: ${cause.message}`, {}, { cause }));
  }

  call<V extends VerbName>(verb: V, args: Verbs[V]["args"], options: CallOptions<V> = {}): Promise<Verbs[V]["result"]> {
    return this.start(verb, args, options).result;
  }

  /** As `call`, with the number that `stop` takes. */
  start<V extends VerbName>(
    verb: V,
    args: Verbs[V]["args"],
    options: CallOptions<V> = {},
  ): RunningCall<Verbs[V]["result"]> {
    const id = ++this.#next;
    return { id, result: this.#run(id, verb, args, options) };
  }

  /** Ends a generation with the text so far. */
  stop(id: number): void {
    if (this.#pending.has(id)) this.#port.post({ id, control: "stop" });
  }

  /** Says how many pieces of a generation were read so far. */
  read(id: number, pieces: number): void {
    if (this.#pending.has(id)) this.#port.post({ id, control: "read", pieces });
  }

  /** Says whether a call's owner does something else: then it keeps no process alive. */
  idle(id: number, idle: boolean): void {
    const pending = this.#pending.get(id);
    if (!pending || pending.idle === idle) return;
    pending.idle = idle;
    this.#hold();
  }

  /** Answers a `ChooseEvent`; `given` are logits that nobody here needs any more. */
  supply(id: number, logits: Float32Array, given: Transferable[]): void {
    if (this.#pending.has(id)) this.#port.post({ id, control: "supply", logits }, given);
  }

  /** Rejects a call for a reason on this side. */
  fail(id: number, reason: unknown): void {
    const pending = this.#pending.get(id);
    if (!pending) return;
    this.#port.post({ id, control: "abort" });
    pending.reject(reason);
  }

  /** Ends the worker, and when it is gone, where the runtime tells, rejects what is pending: who waits for one sees both. */
  async close(reason: EngineError): Promise<void> {
    this.#threads.clear();
    if (!this.#over) this.#ended = this.#port.terminate();
    this.#over ??= reason;
    await this.#ended;
    this.#reject(this.#over);
  }

  get over(): EngineError | null {
    return this.#over;
  }

  async #run<V extends VerbName>(id: number, verb: V, args: Verbs[V]["args"], options: CallOptions<V>) {
    const { signal, onEvent, onLate } = options;
    if (this.#over) throw this.#over;
    signal?.throwIfAborted();
    let unlisten = () => {};
    try {
      return await new Promise<Verbs[V]["result"]>((resolve, reject) => {
        // The caller is told at once; the engine ends the work when it next looks up.
        const abort = () => {
          if (onLate) this.#late.set(id, onLate);
          this.#port.post({ id, control: "abort" });
          reject(signal?.reason);
        };
        if (signal) unlisten = this.#listen(signal, abort);
        const quiet = verb === "measure" || verb === "roofline";
        this.#pending.set(id, { resolve: resolve as (result: unknown) => void, reject, onEvent, idle: false, quiet });
        this.#hold();
        try {
          this.#port.post({ id, verb, args });
        } catch (cause) {
          const message = `${verb}: what was given cannot be sent to the engine: ${(cause as Error).message}`;
          throw new EngineError("InvalidArgument", message, {}, { cause });
        }
      });
    } finally {
      unlisten();
      this.#pending.delete(id);
      this.#hold();
    }
  }

  #hold(): void {
    const all = [...this.#pending.values()];
    const awaited = all.some(({ idle }) => !idle);
    // Who waits for the end of a worker holds it: the runtime sees to that.
    if (!this.#over) this.#port.hold?.(awaited);
    this.#watch.on = awaited && !all.some(({ quiet }) => quiet);
  }

  #listen(signal: AbortSignal, abort: () => void): () => void {
    let calls = this.#signals.get(signal);
    if (!calls) {
      const aborts = new Set<() => void>();
      const listener = () => {
        for (const abort of aborts) abort();
      };
      calls = { aborts, listener };
      this.#signals.set(signal, calls);
      signal.addEventListener("abort", calls.listener);
    }
    const { aborts, listener } = calls;
    aborts.add(abort);
    return () => {
      aborts.delete(abort);
      if (aborts.size > 0) return;
      this.#signals.delete(signal);
      signal.removeEventListener("abort", listener);
    };
  }

  #receive(reply: Reply): void {
    this.#watch.heard();
    if ("fatal" in reply) {
      this.#end(revive(reply.fatal, "WorkerFailed"));
      return;
    }
    if ("thread" in reply) {
      if (reply.thread) this.#threads.add(reply.thread);
      else this.#threads.clear();
      return;
    }
    if ("spans" in reply) {
      show(reply.spans);
      return;
    }
    const pending = this.#pending.get(reply.id);
    if (!pending) {
      if ("result" in reply) this.#late.get(reply.id)?.(reply.result as never);
      if (!("event" in reply)) this.#late.delete(reply.id);
      return;
    }
    if ("event" in reply) {
      const hear = async () => pending.onEvent?.(reply.event as never, reply.id);
      hear().catch((reason) => this.fail(reply.id, reason));
    } else if ("error" in reply) pending.reject(revive(reply.error));
    else pending.resolve(reply.result);
  }

  #end(reason: EngineError): void {
    if (this.#over) return;
    this.#over = reason;
    this.#threads.clear();
    this.#ended = this.#port.terminate();
    this.#reject(reason);
  }

  #reject(reason: EngineError): void {
    for (const pending of [...this.#pending.values()]) pending.reject(reason);
  }
}

function revive(data: ErrorData, code = "Internal"): EngineError {
  const error = new EngineError(data.code ?? code, data.message, data.detail);
  if (data.stack) error.stack = data.stack;
  return error;
}
