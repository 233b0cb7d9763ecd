/** A look at what may take long. There is one at a time: whoever asks while it goes on waits for the same. */
export class Look<T> {
  readonly #look: () => Promise<T>;
  #going: Promise<T> | null = null;
  /** What the last look that was done has found. */
  last: T | null = null;

  constructor(look: () => Promise<T>) {
    this.#look = look;
  }

  done(): Promise<T> {
    this.#going ??= this.#begin();
    return this.#going;
  }

  /** @returns null where it is not done in so many milliseconds; it goes on then */
  async within(ms: number): Promise<T | null> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<null>((resolve) => {
      timer = setTimeout(resolve, ms, null);
    });
    return Promise.race([this.done(), late]).finally(() => clearTimeout(timer));
  }

  async #begin(): Promise<T> {
    try {
      const found = await this.#look();
      this.last = found;
      return found;
    } finally {
      this.#going = null;
    }
  }
}
