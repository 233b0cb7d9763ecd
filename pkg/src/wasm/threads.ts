import type { Port, WorkerPort } from "../rpc/port.ts";
import { EngineError } from "../types/errors.ts";
import type { Build, GlueHost, PoolBuilder } from "./load.ts";

/**
 * The pool is wasm-bindgen-rayon's, its workers are ours: the crate's own starter imports itself from a blob and knows
 * web workers only (RReverser/wasm-bindgen-rayon#24 asks for Node). Here a pool worker is one more worker of the file
 * that the engine runs from, in a page, in Node and elsewhere.
 *
 * WebKit: some versions do not see in one thread that another has grown the memory, and trap (WebKit bug 303387, seen
 * as wasm-bindgen-rayon#32). Reserve what the plan needs before `initThreadPool`, and nothing grows while workers run.
 */
interface Join {
  join: string;
  module: WebAssembly.Module;
  memory: WebAssembly.Memory;
  receiver: number;
  /** Closes when the worker has ended, however that came, in Node and in Chrome. */
  life: MessagePort;
  /** The name of a lock that the worker holds as long as it lives, where it has Web Locks, as browsers do. */
  lock: string;
}

/** What tells that a thread has ended: a port that closes, or the name of a lock that somebody else can have then. */
export type Life = MessagePort | string;

/** Whoever is not inside a step hears there of threads that end by themselves. */
export interface ThreadsOwner {
  /** A thread has started. */
  onThread(life: Life): void;
  /** All threads so far are about to be ended. */
  onThreadsEnded(): void;
}

export const isJoin = (message: unknown): message is Join =>
  typeof message === "object" && message !== null && "join" in message;

/** The engine's side: starts the workers that `initThreadPool` asks for, and ends them. */
export class Pool implements GlueHost {
  readonly #flavour: string;
  readonly #workers: Workers;
  readonly #onFailure: (error: EngineError) => void;
  readonly #owner: ThreadsOwner;
  #over = false;

  /**
   * `onFailure` is called at most once, with the first failure. The team is then poisoned and the workers are gone. A step that waits
   * for a worker that was killed keeps this thread from hearing of it, so `owner` watches too.
   */
  constructor(
    flavour: string,
    workers: Workers,
    onFailure: (error: EngineError) => void,
    owner: ThreadsOwner = { onThread() {}, onThreadsEnded() {} },
  ) {
    this.#flavour = flavour;
    this.#workers = workers;
    this.#onFailure = onFailure;
    this.#owner = owner;
  }

  async startWorkers(module: WebAssembly.Module, memory: WebAssembly.Memory, builder: PoolBuilder): Promise<void> {
    const join = { join: this.#flavour, module, memory, receiver: builder.receiver() };
    await Promise.all(Array.from({ length: builder.numThreads() }, () => this.#start(join)));
    // Returns when every worker has taken its thread from the builder's channel, so that nothing needs it after.
    builder.build();
    builder.free();
  }

  /** Ends the workers, so that nothing but the caller holds the memory. */
  end(): void {
    this.#over = true;
    this.#owner.onThreadsEnded();
    this.#workers.end();
  }

  #start(join: Omit<Join, "life" | "lock">): Promise<void> {
    return new Promise((resolve, reject) => {
      const { worker, failed } = this.#workers.take();
      const fail = (cause: unknown) => {
        const error = new EngineError("WorkerFailed", `a pool worker failed: ${words(cause)}`, {}, { cause });
        reject(error);
        if (this.#over) return;
        this.end();
        this.#onFailure(error);
      };
      worker.onerror = fail;
      if (failed) return fail(failed);
      const lock = `ternlight thread ${crypto.randomUUID()}`;
      worker.onmessage = (message) => {
        if (message === READY) resolve();
        // Not before: whoever asks for the lock first has it.
        else if (message === lock) this.#owner.onThread(lock);
        else fail(message);
      };
      const { port1, port2 } = new MessageChannel();
      worker.post({ ...join, life: port1, lock }, [port1]);
      this.#owner.onThread(port2);
    });
  }
}

/** Workers for a pool. They take as long to start as a module takes to compile, so that they may be started before it. */
export class Workers {
  readonly #spawn: () => WorkerPort;
  readonly #all: WorkerPort[] = [];
  #early: { worker: WorkerPort; failed: Error | null }[] = [];

  constructor(spawn: () => WorkerPort) {
    this.#spawn = spawn;
  }

  /** Starts so many before they are taken. */
  start(count: number): void {
    this.#early = Array.from({ length: count }, () => {
      const early = { worker: this.#new(), failed: null as Error | null };
      early.worker.onerror = (error) => (early.failed = error);
      return early;
    });
  }

  /** A worker that has its first message to come, and what has gone wrong with it already. */
  take(): { worker: WorkerPort; failed: Error | null } {
    return this.#early.shift() ?? { worker: this.#new(), failed: null };
  }

  end(): void {
    this.#early = [];
    for (const worker of this.#all.splice(0)) worker.terminate();
  }

  #new(): WorkerPort {
    const worker = this.#spawn();
    this.#all.push(worker);
    return worker;
  }
}

const READY = "ready";

/** A port that nothing refers to may be collected, which closes it. */
const kept: MessagePort[] = [];

/** The worker's side. Does not end before the pool does. */
export async function work(message: Join, port: Port, builds: Readonly<Record<string, Build>>): Promise<void> {
  kept.push(message.life);
  if (await hold(message.lock)) port.post(message.lock);
  const build = builds[message.join];
  if (!build) throw new Error(`no build is named ${message.join}`);
  const glue = build.createGlue({ startWorkers: () => Promise.reject(new Error("a pool worker starts no pool")) });
  glue.initSync({ module: message.module, memory: message.memory });
  port.post(READY);
  try {
    glue.wbg_rayon_start_worker?.(message.receiver);
  } catch (error) {
    // The engine may be waiting for this worker inside a step, where no message reaches it: only memory does.
    glue.poison();
    port.post(words(error));
  }
}

/**
 * Takes a lock that ends with this worker; false where there are none, or not for this page. Deno ends no process while somebody waits for
 * a lock: there a thread that is gone shows as a silence of the engine.
 */
function hold(name: string): Promise<boolean> {
  return new Promise((resolve) => {
    const locks = "Deno" in globalThis ? undefined : globalThis.navigator?.locks;
    const forEver = () => {
      resolve(true);
      return new Promise(() => {});
    };
    if (locks) locks.request(name, forEver).catch(() => resolve(false));
    else resolve(false);
  });
}

const words = (error: unknown) => (error instanceof Error ? error.message : String(error));
