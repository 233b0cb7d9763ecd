/** A bounded queue between several writers and one reader. */

const MOST = 64;

export class Channel<T> {
  readonly #waiting: T[] = [];
  #wake = () => {};
  #room = () => {};
  #full: Promise<void> | null = null;
  #end: { error?: unknown } | null = null;
  #left = false;

  /** Resolves when there is room for more. */
  put(value: T): Promise<void> | undefined {
    if (this.#left) return undefined;
    this.#waiting.push(value);
    this.#wake();
    if (this.#waiting.length < MOST) return undefined;
    this.#full ??= new Promise((resolve) => {
      this.#room = resolve;
    });
    return this.#full;
  }

  /** The reader has gone: writers no longer wait, and what they write is dropped. */
  leave(): void {
    this.#left = true;
    this.#waiting.length = 0;
    this.#room();
  }

  end(): void {
    this.#end ??= {};
    this.#wake();
  }

  fail(error: unknown): void {
    this.#end ??= { error };
    this.#wake();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<T, undefined> {
    for (;;) {
      const value = this.#waiting.shift();
      if (value !== undefined) {
        if (this.#full && this.#waiting.length < MOST / 2) {
          this.#full = null;
          this.#room();
        }
        yield value;
      } else if (this.#end) {
        if ("error" in this.#end) throw this.#end.error;
        return;
      } else {
        await new Promise<void>((resolve) => {
          this.#wake = resolve;
        });
      }
    }
  }
}
