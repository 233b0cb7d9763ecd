/**
 * How many threads compute while other programs want the cores: a page that renders, above all. A thread that loses its core in the
 * middle of a step keeps the others waiting for milliseconds. Where that happens, one thread fewer is tried for a moment, and what was
 * faster goes on. Answers are the same with any number.
 */

/** Milliseconds of steps that are measured together: several frames of a page. */
const WINDOW = 120;
/** Waits for a lost thread in a window from which on it is worth a trial. */
const STALLS = 3;
/** A smaller team must be so much faster to stay. */
const GAIN = 0.95;
/** Windows between two trials; after one that gained nothing twice as many, up to the most. */
const LEAST = 8;
const MOST = 128;

interface Engine {
  /** Returns how often threads have kept others waiting so far. */
  setActiveThreads(count: number): number;
}

export class Crowding {
  readonly #engine: Engine;
  readonly #threads: number;
  #active: number;
  /** What is measured: how many tokens a step gives. */
  #kind = 0;
  #ms = 0;
  #steps = 0;
  #stalls = 0;
  /** Milliseconds of a step before the trial that is under way; null where none is. */
  #before: number | null = null;
  #left = 0;
  #pause = LEAST;

  constructor(engine: Engine, threads: number) {
    this.#engine = engine;
    this.#threads = threads;
    this.#active = threads;
  }

  get active(): number {
    return this.#active;
  }

  /** A step took so long and gave so many tokens. */
  step(ms: number, tokens: number): void {
    // Steps of a prompt take as long as they are long: only those of answers compare.
    if (this.#threads === 1 || tokens === 0) return;
    if (tokens !== this.#kind) {
      this.#begin();
      this.#before = null;
      this.#kind = tokens;
    }
    this.#ms += ms;
    this.#steps++;
    if (this.#ms >= WINDOW) this.#decide(this.#ms / this.#steps);
  }

  #decide(mean: number): void {
    const stalls = this.#engine.setActiveThreads(this.#active) - this.#stalls;
    const before = this.#before;
    if (before !== null) {
      // The trial is over: a step with the other number of threads took so long.
      this.#before = null;
      const gained = mean < (this.#active < this.#threads ? GAIN : 1) * before;
      if (!gained) this.#active = this.#other;
      this.#pause = gained ? LEAST : Math.min(2 * this.#pause, MOST);
      this.#left = this.#pause;
    } else if (--this.#left <= 0 && (this.#active < this.#threads || stalls >= STALLS)) {
      this.#before = mean;
      this.#active = this.#other;
    }
    this.#begin();
  }

  get #other(): number {
    return this.#active < this.#threads ? this.#threads : this.#threads - 1;
  }

  #begin(): void {
    this.#stalls = this.#engine.setActiveThreads(this.#active);
    this.#ms = this.#steps = 0;
  }
}
