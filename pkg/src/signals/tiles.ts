/** Whether packed weights are still what was loaded: a hash of each tile at load, compared later a few tiles at a time. */

/** What the engine says of a matrix, see `watch(0)`. */
const FIELDS = 7;
/** Places that are listed. */
const MAX_PLACES = 100;

interface Matrix {
  address: number;
  tiles: number;
  bytes: number;
  rows: number;
  cols: number;
  scales: number;
  scaleCount: number;
}

const matricesOf = (numbers: Float64Array): Matrix[] =>
  Array.from({ length: numbers.length / FIELDS }, (_, i) => {
    const [address, tiles, bytes, rows, cols, scales, scaleCount] = numbers.subarray(FIELDS * i) as unknown as number[];
    return {
      address: address!,
      tiles: tiles!,
      bytes: bytes!,
      rows: rows!,
      cols: cols!,
      scales: scales!,
      scaleCount: scaleCount!,
    };
  });

/** The words of a range, whose address and length are multiples of 4. Each step keeps what differs different. */
function hash(words: Int32Array): number {
  // Four sums, because each product waits for the one before it.
  let [a, b, c, d] = [1, 2, 3, 4];
  const whole = words.length & ~3;
  for (let i = 0; i < whole; i += 4) {
    a = Math.imul(a ^ words[i]!, 0x01000193);
    b = Math.imul(b ^ words[i + 1]!, 0x01000193);
    c = Math.imul(c ^ words[i + 2]!, 0x01000193);
    d = Math.imul(d ^ words[i + 3]!, 0x01000193);
  }
  for (let i = whole; i < words.length; i++) a = Math.imul(a ^ words[i]!, 0x01000193);
  // Odd factors, so that a difference in one sum alone stays one.
  return (Math.imul(a, 3) + Math.imul(b, 5) + Math.imul(c, 7) + Math.imul(d, 11)) | 0;
}

export class Tiles {
  readonly #memory: WebAssembly.Memory;
  readonly #matrices: Matrix[];
  /** One for each tile of each matrix, and then one for its scales of rows. */
  readonly #hashes: Int32Array[];
  readonly #changed = new Set<string>();
  /** The next tile that is compared. */
  #matrix = 0;
  #tile = 0;
  rounds = 0;
  readonly tiles: number;

  constructor(memory: WebAssembly.Memory, numbers: Float64Array) {
    this.#memory = memory;
    this.#matrices = matricesOf(numbers);
    this.#hashes = this.#matrices.map(({ tiles }) => new Int32Array(tiles + 1));
    this.tiles = this.#matrices.reduce((sum, { tiles }) => sum + tiles, 0);
  }

  /** Takes the hashes, with a turn for messages now and then. */
  async take(turn: () => Promise<void>): Promise<void> {
    let until = performance.now() + SLICE_MS;
    for (const [matrix, { tiles }] of this.#matrices.entries()) {
      for (let tile = 0; tile <= tiles; tile++) {
        this.#hashes[matrix]![tile] = this.#hash(matrix, tile);
        if (performance.now() < until) continue;
        await turn();
        until = performance.now() + SLICE_MS;
      }
    }
  }

  /** Compares further tiles for so many milliseconds, at most all once. */
  compare(ms: number): void {
    const until = performance.now() + ms;
    for (let left = this.tiles + this.#matrices.length; left > 0; left--) {
      this.#compareNext();
      if (performance.now() >= until) return;
    }
  }

  /** Compares all that is left of this round, and all before it. */
  async compareAll(turn: () => Promise<void>): Promise<void> {
    [this.#matrix, this.#tile] = [0, 0];
    const rounds = this.rounds;
    for (let until = performance.now() + SLICE_MS; this.rounds === rounds; ) {
      this.#compareNext();
      if (performance.now() < until) continue;
      await turn();
      until = performance.now() + SLICE_MS;
    }
  }

  get changed(): number {
    return this.#changed.size;
  }

  /** The share of weights in tiles that have changed; scales count as their whole matrix. */
  get share(): number {
    const changed = this.#matrices.map(() => 0);
    // Behind the last tile are the scales.
    for (const { matrix, tile } of this.places) changed[matrix]! += tile < this.#matrices[matrix]!.tiles ? 1 : Infinity;
    let [own, all] = [0, 0];
    for (const [i, { tiles, rows, cols }] of this.#matrices.entries()) {
      own += (rows * cols * Math.min(tiles, changed[i]!)) / tiles;
      all += rows * cols;
    }
    return all > 0 ? own / all : 0;
  }

  get places(): { matrix: number; tile: number }[] {
    return [...this.#changed].map((key) => {
      const [matrix, tile] = key.split(" ").map(Number) as [number, number];
      return { matrix, tile };
    });
  }

  get shown(): { matrix: number; tile: number }[] {
    return this.places.slice(0, MAX_PLACES);
  }

  /** Changes one bit in each of so many tiles that are spread over all of them. */
  flip(count: number): void {
    const all = this.#matrices.flatMap((matrix) =>
      Array.from({ length: matrix.tiles }, (_, tile) => ({ matrix, tile })),
    );
    const step = all.length / Math.min(count, all.length);
    for (let i = 0; i < Math.min(count, all.length); i++) {
      const { matrix, tile } = all[Math.floor(i * step)]!;
      // The last byte of a tile is one of codes, whatever its layout.
      const byte = matrix.address + (tile + 1) * matrix.bytes - 1;
      new Uint8Array(this.#memory.buffer)[byte]! ^= 1;
    }
  }

  /** Makes a number of the first matrix NaN: a scale, or the first value of a tile. */
  spoil(): void {
    const [{ address, scales, scaleCount }] = this.#matrices as [Matrix];
    if (scaleCount > 0) new Float32Array(this.#memory.buffer, scales, 1)[0] = Number.NaN;
    // As f16, bf16 and f32 this is NaN.
    else new Uint8Array(this.#memory.buffer, address, 4).fill(0xff);
  }

  #compareNext(): void {
    const { tiles } = this.#matrices[this.#matrix]!;
    const key = `${this.#matrix} ${this.#tile}`;
    if (this.#hash(this.#matrix, this.#tile) !== this.#hashes[this.#matrix]![this.#tile]) this.#changed.add(key);
    else this.#changed.delete(key);
    if (++this.#tile <= tiles) return;
    this.#tile = 0;
    this.#matrix = (this.#matrix + 1) % this.#matrices.length;
    if (this.#matrix === 0) this.rounds++;
  }

  #hash(matrix: number, tile: number): number {
    const { address, tiles, bytes, scales, scaleCount } = this.#matrices[matrix]!;
    const { buffer } = this.#memory;
    if (tile < tiles) return hash(new Int32Array(buffer, address + tile * bytes, bytes / 4));
    return scaleCount > 0 ? hash(new Int32Array(buffer, scales, scaleCount)) : 0;
  }
}

/** Milliseconds between two turns for messages. */
const SLICE_MS = 8;
