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

/** What steps of a window took, by how many tokens they gave: only steps that give as many compare. */
type Window = Map<number, { ms: number; steps: number }>;

export class Crowding {
  readonly #engine: Engine;
  readonly #threads: number;
  #active: number;
  #window: Window = new Map();
  #ms = 0;
  #stalls = 0;
  /** The window before the trial that is under way; null where none is. */
  #before: Window | null = null;
  /** Windows until a trial may begin. The first steps run code that the runtime has yet to compile well. */
  #left = LEAST;
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
    const sum = this.#window.get(tokens) ?? { ms: 0, steps: 0 };
    this.#window.set(tokens, { ms: sum.ms + ms, steps: sum.steps + 1 });
    this.#ms += ms;
    if (this.#ms >= WINDOW) this.#decide();
  }

  #decide(): void {
    const stalls = this.#engine.setActiveThreads(this.#active) - this.#stalls;
    if (this.#before) {
      const gained = isFaster(this.#window, this.#before, this.#active < this.#threads ? GAIN : 1);
      this.#before = null;
      if (!gained) this.#active = this.#other;
      this.#pause = gained ? LEAST : Math.min(2 * this.#pause, MOST);
      this.#left = this.#pause;
    } else if (--this.#left <= 0 && (this.#active < this.#threads || stalls >= STALLS)) {
      this.#before = this.#window;
      this.#active = this.#other;
    }
    this.#stalls = this.#engine.setActiveThreads(this.#active);
    this.#window = new Map();
    this.#ms = 0;
  }

  get #other(): number {
    return this.#active < this.#threads ? this.#threads : this.#threads - 1;
  }
}

/** Whether steps take less than this share of what they took before. Where none compare, they do not. */
function isFaster(window: Window, before: Window, share: number): boolean {
  let [taken, expected] = [0, 0];
  for (const [tokens, { ms, steps }] of window) {
    const earlier = before.get(tokens);
    if (!earlier) continue;
    taken += ms;
    expected += steps * (earlier.ms / earlier.steps);
  }
  return taken < share * expected;
}
