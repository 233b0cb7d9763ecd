/** A bounded queue between several writers and one reader. */

const MOST = 64;

export class Channel<T> {
  readonly #waiting: T[] = [];
  #wake = () => {};
  #room = () => {};
  #full: Promise<void> | null = null;
  #end: { error?: unknown } | null = null;

  /** Resolves when there is room for more. */
  put(value: T): Promise<void> | undefined {
    this.#waiting.push(value);
    this.#wake();
    if (this.#waiting.length < MOST) return undefined;
    this.#full ??= new Promise((resolve) => {
      this.#room = resolve;
    });
    return this.#full;
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
