/** The owner's end: promises and events by request id. */

import { EngineError } from "../errors.ts";
import type { WorkerPort } from "../platform/port.ts";
import type { ErrorData, Reply, VerbName, Verbs } from "./protocol.ts";
import { show } from "./timeline.ts";
import { Watch } from "./watch.ts";

export interface CallOptions<V extends VerbName> {
  signal?: AbortSignal | undefined;
  onEvent?: (event: Verbs[V]["event"], id: number) => void;
}

interface Pending {
  resolve(result: unknown): void;
  reject(reason: unknown): void;
  onEvent?: ((event: never, id: number) => void) | undefined;
}

export interface RunningCall<T> {
  id: number;
  result: Promise<T>;
}

export class Client {
  readonly #port: WorkerPort;
  readonly #watch: Watch;
  readonly #pending = new Map<number, Pending>();
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
    if (!this.#over) this.#ended = this.#port.terminate();
    this.#over ??= reason;
    await this.#ended;
    this.#reject(this.#over);
  }

  get over(): EngineError | null {
    return this.#over;
  }

  async #run<V extends VerbName>(id: number, verb: V, args: Verbs[V]["args"], { signal, onEvent }: CallOptions<V>) {
    if (this.#over) throw this.#over;
    signal?.throwIfAborted();
    let abort: (() => void) | undefined;
    try {
      return await new Promise<Verbs[V]["result"]>((resolve, reject) => {
        // The caller is told at once; the engine ends the work when it next looks up.
        abort = () => {
          this.#port.post({ id, control: "abort" });
          reject(signal?.reason);
        };
        signal?.addEventListener("abort", abort);
        this.#pending.set(id, { resolve: resolve as (result: unknown) => void, reject, onEvent });
        this.#port.hold?.(true);
        // What is measured is not interrupted, for seconds on a slow machine.
        this.#watch.on = verb !== "measure" && verb !== "roofline";
        this.#port.post({ id, verb, args });
      });
    } finally {
      if (abort) signal?.removeEventListener("abort", abort);
      this.#pending.delete(id);
      if (this.#pending.size === 0) {
        this.#port.hold?.(false);
        this.#watch.on = false;
      }
    }
  }

  #receive(reply: Reply): void {
    this.#watch.heard();
    if ("fatal" in reply) {
      this.#end(revive(reply.fatal, "WorkerFailed"));
      return;
    }
    if ("spans" in reply) {
      show(reply.spans);
      return;
    }
    const pending = this.#pending.get(reply.id);
    if (!pending) return;
    if ("event" in reply) pending.onEvent?.(reply.event as never, reply.id);
    else if ("error" in reply) pending.reject(revive(reply.error));
    else pending.resolve(reply.result);
  }

  #end(reason: EngineError): void {
    if (this.#over) return;
    this.#over = reason;
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
