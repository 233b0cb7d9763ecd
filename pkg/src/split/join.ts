/**
 * The engines of a split model as one. The first has the embedding, the head and the first layers, and decides everything. Its pass stops
 * behind its layers; the hidden rows go through the others, one after another, and back.
 */

import { EngineError } from "../types/errors.ts";
import type { Glue } from "../wasm/load.ts";

export type Engine = Glue["Engine"]["prototype"];

export interface PartEngine {
  engine: Engine;
  memory: WebAssembly.Memory;
}

/** The engine of a whole model, whose parts these are. It does what is not said here as the first. */
export function join(parts: readonly [PartEngine, ...PartEngine[]]): Engine {
  const [first, ...others] = parts;
  const engines = parts.map(({ engine }) => engine);
  const all = engines.map((engine) => engine.agree(true)).every(Boolean);
  for (const engine of engines) engine.agree(all);
  const pass = new Pass(first, others);
  const mine = {
    step: (budget: number) => pass.step(budget),
    save: (session: number, logits: Float32Array) =>
      first.engine.save(session, logits, rest(first.engine, others, session)),
    restore(bytes: Uint8Array, logits: Float32Array, adapters: Float64Array) {
      const session = first.engine.restore(bytes, logits, adapters);
      restoreRest(first.engine, others, session, bytes);
      return session;
    },
    tune(ahead: string, spent: number) {
      // All measurements of a load share their time: what one part has found holds in those that have the same kinds of weights.
      const begun = performance.now() - spent;
      let known = new Uint8Array();
      for (const engine of engines) {
        const found = (known.length > 0 && engine.recall(known)) || engine.tune(ahead, performance.now() - begun);
        known = merged([known, found]);
      }
      return known;
    },
    recall(known: Uint8Array) {
      const found = engines.map((engine) => engine.recall(known));
      return found.every((choices) => choices !== undefined) ? merged(found) : undefined;
    },
    setActiveThreads: (count: number) => engines.reduce((sum, engine) => sum + engine.setActiveThreads(count), 0),
    tally: () => added(engines.map((engine) => engine.tally())),
    profile: (on: boolean) => added(engines.map((engine) => engine.profile(on))),
    trace() {
      throw new EngineError(
        "UnsupportedOption",
        "the matrices of a model that is split over several memories cannot be traced",
      );
    },
  };
  // The glue knows an object by a number in it, which is the first engine's.
  return Object.assign(Object.create(first.engine), mine);
}

/** The pass under way. */
class Pass {
  readonly #first: PartEngine;
  readonly #others: readonly PartEngine[];
  /** Which of the others has it; null where the first has. */
  #at: number | null = null;

  constructor(first: PartEngine, others: readonly PartEngine[]) {
    this.#first = first;
    this.#others = others;
  }

  /** As `Engine.step`. */
  step(budget: number): unknown[] {
    const first = this.#first;
    const until = performance.now() + budget;
    const events: unknown[] = [];
    for (;;) {
      // A pass that nobody waits for any more is left.
      if (this.#at !== null && !first.engine.waits(false)) this.#at = null;
      if (this.#at !== null && !this.#advance(this.#at, until)) return events;
      if (this.#at !== null) continue;
      events.push(...first.engine.step(until - performance.now()));
      const handover = first.engine.handover(0);
      if (handover.length === 0) return events;
      for (const { engine } of this.#others) engine.follow(handover);
      carry(first, this.#others[0]!);
      this.#at = 0;
    }
  }

  /** Computes a part's layers; false where time was up before. */
  #advance(at: number, until: number): boolean {
    const part = this.#others[at]!;
    if (part.engine.busy()) part.engine.step(until - performance.now());
    if (part.engine.busy()) return false;
    const next = this.#others[at + 1];
    carry(part, next ?? this.#first);
    if (!next) this.#first.engine.waits(true);
    this.#at = next ? at + 1 : null;
    return true;
  }
}

/** Copies the hidden rows of a pass from one memory to another. */
function carry(from: PartEngine, to: PartEngine): void {
  // Both before the views: a call may let a memory grow, which detaches them.
  const [source, target] = [from.engine.hidden(), to.engine.hidden()];
  view(to.memory, target).set(view(from.memory, source));
}

const view = ({ buffer }: WebAssembly.Memory, [address, length]: Uint32Array) =>
  new Float32Array(buffer, address, length);

/** What the parts but the first have of a session, as `Engine.save` takes it: block by block, then the states. */
function rest(first: Engine, others: readonly PartEngine[], session: number): Uint8Array {
  const { cached, table } = told(first, others, session);
  const parts = others.map(({ engine }) => read(engine.part(table, cached)));
  const blocks = parts[0]!.blocks.flatMap((_, i) => parts.map(({ blocks }) => blocks[i]!));
  return concat([...blocks, ...parts.map(({ state }) => state)]);
}

/** Gives the parts but the first what is theirs of a saved session that the first has restored. */
function restoreRest(first: Engine, others: readonly PartEngine[], session: number, bytes: Uint8Array): void {
  const { table, kept } = told(first, others, session);
  const saved = read(bytes);
  // Of a conversation without positions a part tells the size of its blocks, and its state.
  const sizes = others.map(({ engine }) => read(engine.part(table, 0)));
  const sum = (size: (part: Saved) => number) => sizes.reduce((sum, part) => sum + size(part), 0);
  let at = saved.size - sum(({ size }) => size);
  let stateAt = saved.state.length - sum(({ state }) => state.length);
  for (const [i, { engine }] of others.entries()) {
    const { size, state } = sizes[i]!;
    // The first has taken as many blocks as were free.
    const own = saved.blocks.slice(0, kept).map((block) => block.subarray(at, at + size));
    engine.takePart(table, concat([...own, saved.state.subarray(stateAt, stateAt + state.length)]));
    at += size;
    stateAt += state.length;
  }
}

/** Tells the other parts of an idle session. Answers its table, its computed tokens, and its blocks: see `src/engine/split.rs`. */
function told(first: Engine, others: readonly PartEngine[], session: number) {
  const numbers = first.handover(session);
  for (const { engine } of others) engine.follow(numbers);
  const row = 3 + 3 * numbers[1]!;
  return { table: numbers[row]!, cached: numbers[row + 1]!, kept: numbers[row + 4]! };
}

/** A saved session, or what a part has of one; see `src/engine/snapshot.rs`. */
interface Saved {
  /** Bytes of a block. */
  size: number;
  blocks: Uint8Array[];
  /** Of a conversation on a hybrid. */
  state: Uint8Array;
}

const HEAD = 32;
const WITH_STATE = 4;

function read(bytes: Uint8Array): Saved {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const number = (at: number) => view.getUint32(at, true);
  const [version, tokens, count, size] = [8, 12, 16, 20].map(number) as [number, number, number, number];
  const from = HEAD + 4 * tokens;
  const blocks = Array.from({ length: count }, (_, i) => bytes.subarray(from + i * size, from + (i + 1) * size));
  // Before a state comes the number of computed tokens, and the checksum behind everything.
  const at = from + count * size + 4;
  return { size, blocks, state: version === WITH_STATE ? bytes.subarray(at, bytes.length - 8) : new Uint8Array() };
}

function concat(pieces: readonly Uint8Array[]): Uint8Array {
  const all = new Uint8Array(pieces.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const piece of pieces) {
    all.set(piece, at);
    at += piece.length;
  }
  return all;
}

/** Choices of several engines, each kind of weights once: two numbers each, the first of which says which kind. */
function merged(all: readonly (Uint8Array | undefined)[]): Uint8Array<ArrayBuffer> {
  const kinds = new Map<number, number>();
  for (const choices of all) {
    for (let i = 0; choices && i < choices.length; i += 2) {
      if (!kinds.has(choices[i]!)) kinds.set(choices[i]!, choices[i + 1]!);
    }
  }
  return Uint8Array.from([...kinds].flat());
}

const added = (all: readonly Float64Array[]) => all[0]!.map((_, i) => all.reduce((sum, one) => sum + one[i]!, 0));
