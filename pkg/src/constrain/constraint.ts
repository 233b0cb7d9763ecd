/** Answers that keep to a format: what may not come next is forbidden before every choice. */

import type { FormatSpec } from "../options/response_format.ts";
import type { WorkerPort } from "../rpc/port.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import { EngineError } from "../types/errors.ts";
import { Compiler, READY, type Request, type State, vocabularyOf } from "./compiler.ts";
import type { Opening } from "./opening.ts";

/** Workers that compile, at most: as many formats are compiled and followed without waiting for each other. */
const MAX_WORKERS = 4;

/** Milliseconds that a compiler may take for one format or one token. The slowest schema of the schema store takes 0.4 s. */
const PATIENCE_MS = 5000;

/** Milliseconds in which a worker has to start, and to read a vocabulary. */
const START_MS = 60_000;

/** UTF-16 units of a format where there are no workers, and compiling it stops everything else: up to about 0.3 s. */
const MAX_SOURCE_HERE = 16 * 1024;

export interface ConstrainerOptions {
  tokenizer: Tokenizer;
  /** Logits of the model. */
  vocab: number;
  /** Ids that end its answers. */
  ends: readonly number[];
  /** The library's module, asked for once. */
  compiled: () => Promise<WebAssembly.Module>;
  /** Starts a worker; null where there are none. */
  spawn: (() => WorkerPort) | null;
}

/** What a model's constraints share. Nothing is fetched, started or built before one is asked for. */
export class Constrainer {
  readonly #options: ConstrainerOptions;
  readonly #compilers = new Set<CompilerHandle>();
  #opening: Promise<Opening> | null = null;
  #next = 0;

  constructor(options: ConstrainerOptions) {
    this.#options = options;
  }

  /** @param mayEnd whether the model may end a text that is whole but could go on */
  async start(format: FormatSpec, mayEnd: boolean): Promise<Constraint> {
    const { ends, spawn } = this.#options;
    if (!spawn && format.source.length > MAX_SOURCE_HERE) {
      const reason = `${format.source.length} characters; where there are no workers at most ${MAX_SOURCE_HERE} are compiled`;
      throw refused(format, "", reason);
    }
    const opening = await this.#open();
    const constraint = new Constraint(++this.#next, format, mayEnd ? [] : ends, this.#free(opening));
    await constraint.begin();
    return constraint;
  }

  /** Ends the workers. */
  end(): void {
    for (const compiler of this.#compilers) compiler.end();
    this.#compilers.clear();
  }

  #open(): Promise<Opening> {
    const { tokenizer, vocab, ends, compiled } = this.#options;
    this.#opening ??= compiled().then(
      (constrain) => ({ constrain, vocabulary: vocabularyOf(tokenizer, vocab, ends) }),
      (error) => {
        this.#opening = null;
        throw error;
      },
    );
    return this.#opening;
  }

  /** The compiler with the least to do; a new one rather than one at work. */
  #free(opening: Opening): CompilerHandle {
    const { spawn } = this.#options;
    const [least] = [...this.#compilers].sort((a, b) => a.load - b.load);
    if (least && (least.load === 0 || !spawn || this.#compilers.size === MAX_WORKERS)) return least;
    const made = new CompilerHandle(opening, spawn, () => {
      // One stays for the next format.
      if (this.#compilers.size === 1) return;
      this.#compilers.delete(made);
      made.end();
    });
    this.#compilers.add(made);
    return made;
  }
}

/** Where requests go: a worker, or this thread. */
interface Channel {
  post(request: Request): void;
  end(): void;
}

/**
 * A compiler and its constraints. Where it traps or hangs, the one that it was working for fails, and the others go on in a new one,
 * which is told what they have accepted so far.
 */
class CompilerHandle {
  readonly #opening: Opening;
  readonly #spawn: (() => WorkerPort) | null;
  readonly #onIdle: () => void;
  readonly #live = new Map<number, Constraint>();
  /** Requests without an answer so far, by their constraints. */
  readonly #waiting: number[] = [];
  #channel: Channel | null = null;
  #ready = false;
  #watch: ReturnType<typeof setTimeout> | undefined;

  constructor(opening: Opening, spawn: (() => WorkerPort) | null, onIdle: () => void) {
    this.#opening = opening;
    this.#spawn = spawn;
    this.#onIdle = onIdle;
  }

  /** Constraints that it works for. */
  get load(): number {
    return this.#live.size;
  }

  begin(constraint: Constraint): void {
    this.#live.set(constraint.id, constraint);
    if (this.#channel) this.#post(constraint.beginning);
    else this.#restart();
  }

  accept(id: number, token: number): void {
    if (this.#live.has(id)) this.#post({ id, token });
  }

  free(id: number): void {
    if (!this.#live.delete(id)) return;
    this.#channel?.post({ id, free: true });
    if (this.#live.size === 0) this.#onIdle();
  }

  end(): void {
    clearTimeout(this.#watch);
    this.#channel?.end();
    this.#channel = null;
    this.#waiting.length = 0;
  }

  /** Begins anew, with everything that is under way. */
  #restart(): void {
    this.end();
    this.#ready = false;
    this.#channel = this.#open();
    for (const constraint of [...this.#live.values()]) this.#post(constraint.beginning);
  }

  #open(): Channel {
    const opening = this.#opening;
    if (!this.#spawn) {
      const compiler = new Compiler(opening);
      const channel: Channel = {
        post: (request) => {
          const state = compiler.run(request);
          if (state && this.#channel === channel) this.#receive(state);
        },
        end() {},
      };
      return channel;
    }
    const port = this.#spawn();
    const channel: Channel = { post: (request) => port.post(request), end: () => port.terminate() };
    port.onmessage = (message) => {
      if (this.#channel !== channel) return;
      if (message !== READY) return this.#receive(message as State);
      this.#ready = true;
      this.#wait();
    };
    port.onerror = (error) => {
      if (this.#channel === channel) this.#fail(error.message);
    };
    port.post(opening);
    return channel;
  }

  #post(request: Request): void {
    this.#waiting.push(request.id);
    if (this.#waiting.length === 1) this.#wait();
    this.#channel?.post(request);
  }

  /** Watches over the request that the compiler is working on. */
  #wait(): void {
    clearTimeout(this.#watch);
    if (this.#waiting.length === 0 || !this.#spawn) return;
    const patience = this.#ready ? PATIENCE_MS : START_MS;
    this.#watch = setTimeout(() => this.#fail(`nothing for ${patience} ms`), patience);
  }

  #receive(state: State): void {
    if ("trap" in state) {
      // Forgetting one may trap too: then nobody has to hear of it.
      this.#fail(state.trap, state.id);
      return;
    }
    this.#waiting.shift();
    this.#wait();
    this.#live.get(state.id)?.receive(state);
  }

  /** Throws the compiler away, and the constraint that it was working for. */
  #fail(cause: string, id = this.#waiting[0]): void {
    const constraint = id === undefined ? undefined : this.#live.get(id);
    if (constraint) {
      this.#live.delete(constraint.id);
      constraint.receive({ id: constraint.id, trap: cause });
    }
    this.end();
    if (this.#live.size > 0) this.#restart();
    else this.#onIdle();
  }
}

/** One answer under way. */
export class Constraint {
  readonly id: number;
  readonly #format: FormatSpec;
  readonly #never: readonly number[];
  readonly #compiler: CompilerHandle;
  readonly #tokens: number[] = [];
  /** Answers that must come before the newest is there: one for each token, and one for the beginning. */
  #missing = 0;
  #state: State | null = null;
  #onState: (() => void)[] = [];

  constructor(id: number, format: FormatSpec, never: readonly number[], compiler: CompilerHandle) {
    this.id = id;
    this.#format = format;
    this.#never = never;
    this.#compiler = compiler;
  }

  /** Resolves when the format is compiled. */
  async begin(): Promise<void> {
    this.#compiler.begin(this);
    try {
      await this.#current();
    } catch (error) {
      this.free();
      throw error;
    }
  }

  /** What a compiler has to know to go on from here. Its answer is for all tokens so far. */
  get beginning(): Request {
    this.#missing = 1;
    const { kind, source } = this.#format;
    return { id: this.id, format: { kind, source }, tokens: [...this.#tokens] };
  }

  receive(state: State): void {
    this.#missing--;
    // What has failed stays so, whatever is still on its way.
    if (!this.#state || "bits" in this.#state) this.#state = state;
    if (this.#missing > 0 && "bits" in this.#state) return;
    for (const heard of this.#onState.splice(0)) heard();
  }

  /** Forbids what may not come next; false where nothing may, and the text is whole. */
  async mask(logits: Float32Array): Promise<boolean> {
    const { bits } = await this.#current();
    for (const id of this.#never) bits[id >>> 5]! &= ~(1 << (id & 31));
    let any = 0;
    for (let id = 0; id < logits.length; id++) {
      const allowed = ((bits[id >>> 5] ?? 0) >>> (id & 31)) & 1;
      if (!allowed) logits[id] = -Infinity;
      any |= allowed;
    }
    return any === 1;
  }

  /** Goes on by a token. What may follow it is found while the engine computes. */
  accept(token: number): void {
    this.#tokens.push(token);
    this.#missing++;
    this.#compiler.accept(this.id, token);
  }

  /** Whether the text is whole and nothing may follow. */
  async done(): Promise<boolean> {
    return (await this.#current()).done;
  }

  free(): void {
    this.#compiler.free(this.id);
  }

  /** The state after the newest token. */
  async #current(): Promise<{ bits: Uint32Array; done: boolean }> {
    const failed = this.#state !== null && !("bits" in this.#state);
    if (this.#missing > 0 && !failed) await new Promise<void>((resolve) => this.#onState.push(resolve));
    const state = this.#state!;
    if ("bits" in state) return state;
    if ("trap" in state) throw refused(this.#format, "", "it takes more than the library can do", state.trap);
    const split = state.refusal.indexOf("\n");
    throw refused(this.#format, state.refusal.slice(0, Math.max(split, 0)), state.refusal.slice(split + 1));
  }
}

function refused({ option }: FormatSpec, place: string, reason: string, cause?: unknown): EngineError {
  const where = place === "" ? option : `${option}, ${place}`;
  const detail = { option, reason, ...(place ? { place } : {}) };
  return new EngineError("BadConstraint", `${where}: ${reason}`, detail, { cause });
}
