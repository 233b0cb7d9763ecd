/** The results of a run in the order of its input: parts that get their names when they are whole, and a journal beside them. */

import { rm } from "node:fs/promises";
import type { Answered } from "../server/serving.ts";
import { EngineError } from "../types/errors.ts";
import { checkPlace, exists, renameSynced, Written } from "./disk.ts";
import { Journal, type Kept, type Mark, newOf, readJournal } from "./journal.ts";

/** How often what is done goes from the journal into the parts, in milliseconds, … */
const MARK_MS = 1000;
/** … and with how many bytes, at the latest. */
const MARK_BYTES = 4 * 2 ** 20;
/** Bytes of answers that are in memory: those that wait for an earlier one, and those that are not in the parts yet. */
const MAX_HELD = 16 * 2 ** 20;
/** What an answer takes beside its text. */
const EACH = 500;
const weight = ({ text }: Answered) => text.length + EACH;

export interface Places {
  out: string;
  errors: string;
  /** The file of errors is there even where there are none. */
  always: boolean;
}

export const journalOf = ({ out }: Places): string => `${out}.journal`;
export const partOf = (file: string): string => `${file}.part`;

/** All that a run writes: none of it may be another's. */
export function filesOf(places: Places): string[] {
  const [{ out, errors }, journal] = [places, journalOf(places)];
  return [out, errors, partOf(out), partOf(errors), journal, newOf(journal)];
}

/** What an earlier run has left; null where there is nothing to go on with. */
export async function leftBy(places: Places): Promise<Kept | null> {
  for (const file of [places.out, places.errors]) await checkPlace(file);
  const kept = await readJournal(journalOf(places));
  // A run that ended before its first answer has left nothing.
  return kept && (kept.whole || kept.mark.next > 0 || kept.answers.size > 0) ? kept : null;
}

/** Gives parts that are whole their names: also those of a run that ended between its last record and their names. */
export async function nameParts(places: Places, { failed }: Mark): Promise<void> {
  const { out, errors, always } = places;
  // An earlier run's would be taken for this one's.
  if (!always && failed === 0) for (const file of [partOf(errors), errors]) await rm(file, { force: true });
  for (const file of [errors, out]) if (await exists(partOf(file))) await renameSynced(partOf(file), file);
  await rm(journalOf(places), { force: true });
}

export class Output {
  readonly #places: Places;
  readonly #journal: Journal;
  readonly #parts: { out: Written; errors: Written };
  /** Answers that the parts do not hold. */
  readonly #answers: Map<number, Answered>;
  /** The hashes of the input up to lines that the parts do not hold. */
  readonly #hashes = new Map<number, string>();
  #mark: Mark;
  #held = 0;
  /** The first line without an answer. */
  #reached: number;
  #new: (Answered & { index: number })[] = [];
  #work: Promise<void> | null = null;
  #failure: unknown = null;
  #markedAt = performance.now();
  #waiting: (() => void)[] = [];

  private constructor(places: Places, journal: Journal, parts: { out: Written; errors: Written }, kept: Kept | null) {
    this.#places = places;
    this.#journal = journal;
    this.#parts = parts;
    this.#mark = kept?.mark ?? { next: 0, out: 0, errors: 0, failed: 0, hash: "" };
    this.#answers = kept?.answers ?? new Map();
    this.#reached = this.#mark.next;
    for (const answer of this.#answers.values()) this.#held += weight(answer);
  }

  /**
   * Whoever opens it has the places to himself.
   *
   * @param of what the answers depend on beside the input; `kept` must be of the same
   * @param waits whether this thread may wait for the disk: it has nothing else to do
   */
  static async open(places: Places, of: string, kept: Kept | null, waits = false): Promise<Output> {
    if (kept && kept.of !== of) {
      const message = `${journalOf(places)} is of a run with another model, or with options that give other answers`;
      throw new EngineError("WrongModel", message, { file: journalOf(places), expected: kept.of, found: of });
    }
    const out = await Written.open(partOf(places.out), kept?.mark.out ?? 0);
    const errors = await Written.open(partOf(places.errors), kept?.mark.errors ?? 0);
    const journal = await Journal.open(journalOf(places), of, kept, waits);
    return new Output(places, journal, { out, errors }, kept);
  }

  /** What was there before this run. */
  get mark(): Mark {
    return this.#mark;
  }

  has(index: number): boolean {
    return this.#answers.has(index);
  }

  /** Answers that are kept, in the parts and behind them. */
  get done(): number {
    return this.#mark.next + this.#answers.size;
  }

  get failed(): number {
    let failed = this.#mark.failed;
    for (const answer of this.#answers.values()) if (answer.failed) failed++;
    return failed;
  }

  /** Whether a line may begin that is so far ahead of the first one without an answer. */
  takes(index: number, window: number): boolean {
    // Answers may have gone to the parts since somebody asked last, while input was slow to come.
    this.#reached = Math.max(this.#reached, this.#mark.next);
    while (this.#answers.has(this.#reached)) this.#reached++;
    if (this.#held < MAX_HELD) return index < this.#reached + window;
    // What is held leaves memory by being written. Where that is done, what is left waits for this very line.
    return index === this.#reached && this.#work === null;
  }

  /** Resolves when there is more room than before. */
  room(): Promise<void> {
    if (this.#failure) return Promise.reject(this.#failure);
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  /** @param hash of the input up to the end of this line */
  begin(index: number, hash: string): void {
    this.#hashes.set(index, hash);
  }

  /** Keeps an answer. @throws what went wrong with earlier ones */
  put(index: number, answer: Answered): void {
    if (this.#failure) throw this.#failure;
    this.#answers.set(index, answer);
    this.#held += weight(answer);
    this.#new.push({ index, ...answer });
    this.wake();
    this.#work ??= this.#write();
  }

  /** Keeps what was put, and leaves the rest to a later run. */
  async stop(): Promise<void> {
    await this.#settled().catch(() => {});
    await this.#close();
  }

  /** Gives the files their names. */
  async finish(): Promise<void> {
    await this.#settled();
    await this.#toParts();
    await this.#journal.whole();
    await this.#close();
    await nameParts(this.#places, this.#mark);
  }

  async #settled(): Promise<void> {
    while (this.#work) await this.#work;
    if (this.#failure) throw this.#failure;
  }

  async #close(): Promise<void> {
    await Promise.all([this.#journal.close(), this.#parts.out.close(), this.#parts.errors.close()]);
  }

  async #write(): Promise<void> {
    try {
      // What comes in one turn of the loop is written at once.
      await new Promise((resolve) => setImmediate(resolve));
      while (this.#new.length > 0) {
        await this.#journal.answers(this.#new.splice(0));
        const late = performance.now() - this.#markedAt >= MARK_MS;
        if (late || this.#held >= MARK_BYTES) await this.#toParts();
      }
    } catch (error) {
      this.#failure = error;
    }
    this.#work = null;
    this.wake();
  }

  /** Moves what is in order from the journal into the parts. */
  async #toParts(): Promise<void> {
    this.#markedAt = performance.now();
    const lines: { out: string[]; errors: string[] } = { out: [], errors: [] };
    let { next, hash, failed } = this.#mark;
    for (let answer = this.#answers.get(next); answer; answer = this.#answers.get(next)) {
      lines[answer.failed ? "errors" : "out"].push(answer.text);
      if (answer.failed) failed++;
      hash = this.#hashes.get(next)!;
      next++;
    }
    if (next === this.#mark.next) return;
    const out = await append(this.#parts.out, lines.out, this.#mark.out);
    const errors = await append(this.#parts.errors, lines.errors, this.#mark.errors);
    for (let index = this.#mark.next; index < next; index++) {
      this.#held -= weight(this.#answers.get(index)!);
      this.#answers.delete(index);
      this.#hashes.delete(index);
    }
    this.#mark = { next, hash, failed, out, errors };
    await this.#journal.mark(this.#mark, this.#answers);
    this.wake();
  }

  /** Lets those look again who wait for room. */
  wake(): void {
    for (const resolve of this.#waiting.splice(0)) resolve();
  }
}

/** @returns where the file ends then */
async function append(file: Written, lines: readonly string[], at: number): Promise<number> {
  if (lines.length === 0) return at;
  const bytes = Buffer.from(`${lines.join("\n")}\n`);
  await file.write(bytes, at);
  await file.sync();
  return at + bytes.length;
}
