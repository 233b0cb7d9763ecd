/** The owner's end of a port: calls as promises, with the events of each, by request id. */

import { EngineError, type ErrorCode } from "../types/errors.ts";
import type { WorkerPort } from "./port.ts";
import type { ErrorData, Reply, VerbName, Verbs } from "./protocol.ts";
import { ThreadWatch } from "./thread_watch.ts";
import { show } from "./user_timing.ts";
import { Watch } from "./watch.ts";

export interface CallOptions<V extends VerbName> {
  signal?: AbortSignal | undefined;
  /** An error that it throws, or rejects with, rejects the call. */
  onEvent?: (event: Verbs[V]["event"], id: number) => unknown;
  /** Receives a result that came after an abort. */
  onLate?: (result: Verbs[V]["result"]) => void;
}

interface Pending {
  resolve(result: unknown): void;
  reject(reason: unknown): void;
  onEvent?: ((event: never, id: number) => unknown) | undefined;
  /** The caller is busy with something else and does not wait for the call. */
  idle: boolean;
  /** A measurement, which reads no messages for seconds on a slow machine. */
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
  /** Calls by their signals. Each signal has one listener, because Node warns where one has many. */
  readonly #signals = new Map<AbortSignal, { aborts: Set<() => void>; listener: () => void }>();
  #next = 0;
  /** Why no call can be made any more; null while calls can be made. */
  #over: EngineError | null = null;
  #ended: unknown = null;
  #lose!: (reason: EngineError) => void;
  /** Resolves with the reason why no call can be made any more. */
  readonly lost: Promise<EngineError> = new Promise((resolve) => {
    this.#lose = resolve;
  });

  constructor(port: WorkerPort) {
    this.#port = port;
    const hangs = (seconds: number) =>
      this.#end(new EngineError("WorkerFailed", `the engine's worker has not answered for ${seconds} s`));
    this.#watch = new Watch(() => port.post({ id: 0, control: "ping" }), hangs, port.hangSeconds);
    port.onmessage = (message) => this.#receive(message as Reply);
    port.onerror = (cause) =>
      this.#end(new EngineError("WorkerFailed", `the engine's worker failed: ${cause.message}`, {}, { cause }));
  }

  call<V extends VerbName>(verb: V, args: Verbs[V]["args"], options: CallOptions<V> = {}): Promise<Verbs[V]["result"]> {
    return this.start(verb, args, options).result;
  }

  /** Like `call`, with the number that the other methods take. */
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

  /** Acknowledges how many pieces of a generation were read so far. */
  read(id: number, pieces: number): void {
    if (this.#pending.has(id)) this.#port.post({ id, control: "read", pieces });
  }

  /** Marks a call whose caller is busy with something else: it does not keep the process alive. */
  idle(id: number, idle: boolean): void {
    const pending = this.#pending.get(id);
    if (!pending || pending.idle === idle) return;
    pending.idle = idle;
    this.#hold();
  }

  /** Answers a `ChooseEvent`. @param given buffers that move to the worker instead of being copied */
  supply(id: number, logits: Float32Array, given: Transferable[]): void {
    if (this.#pending.has(id)) this.#port.post({ id, control: "supply", logits }, given);
  }

  /** Rejects a call for a reason on this side, and aborts it on the other. */
  fail(id: number, reason: unknown): void {
    const pending = this.#pending.get(id);
    if (!pending) return;
    this.#port.post({ id, control: "abort" });
    pending.reject(reason);
  }

  /**
   * Ends the worker. Pending calls are rejected when it is gone, where the runtime tells: a caller that waits for one of them knows that
   * the worker has ended.
   */
  async close(reason: EngineError): Promise<void> {
    this.#threads.clear();
    this.#stop(reason);
    await this.#ended;
    this.#reject(this.#over ?? reason);
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
        // The caller is rejected at once; the engine ends the work when it next reads its messages.
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
          throw unsendable(args, cause as Error);
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
    this.#threads.clear();
    this.#stop(reason);
    this.#reject(reason);
  }

  #stop(reason: EngineError): void {
    if (this.#over) return;
    this.#over = reason;
    this.#ended = this.#port.terminate();
    this.#lose(reason);
  }

  #reject(reason: EngineError): void {
    for (const pending of [...this.#pending.values()]) pending.reject(reason);
  }
}

function revive(data: ErrorData, code: ErrorCode = "Internal"): EngineError {
  const error = new EngineError((data.code as ErrorCode | undefined) ?? code, data.message, data.detail);
  if (data.stack) error.stack = data.stack;
  return error;
}

/** Why arguments cannot be sent, and the option that holds what cannot. */
function unsendable(args: unknown, cause: Error): EngineError {
  const place = functionIn(args) ?? [];
  const option = place[1] ?? place[0];
  const message = `${place.slice(1).join(".") || "what was given"} cannot be sent to the engine: ${cause.message.slice(0, 200)}`;
  return new EngineError("InvalidArgument", message, option ? { option } : {}, { cause });
}

/** The keys that lead to a function, which no message holds. */
function functionIn(value: unknown, seen = new Set<unknown>()): string[] | null {
  if (typeof value === "function") return [];
  if (seen.has(value)) return null;
  seen.add(value);
  for (const [key, inner] of value instanceof Object ? Object.entries(value) : []) {
    const place = functionIn(inner, seen);
    if (place) return [key, ...place];
  }
  return null;
}
