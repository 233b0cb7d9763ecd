/** SHA-256: of what is in memory by WebCrypto, and in pieces, which that cannot do, for files that never are as a whole. */

export async function digest(bytes: Uint8Array): Promise<Uint8Array> {
  return new Uint8Array(await crypto.subtle.digest("SHA-256", bytes as Uint8Array<ArrayBuffer>));
}

export interface Hasher {
  update(bytes: Uint8Array): unknown;
  /** Ends it: a copy made before goes on. */
  digest(): Uint8Array;
  copy(): Hasher;
}

/** Fractions of the square (of the first 8) and cube roots of the first 64 primes, as the standard has it. */
const [START, ROUNDS] = (() => {
  const primes: number[] = [];
  for (let n = 2; primes.length < 64; n++) if (primes.every((prime) => n % prime !== 0)) primes.push(n);
  const fraction = (value: number) => (value % 1) * 2 ** 32;
  return [
    Int32Array.from(primes.slice(0, 8), (prime) => fraction(Math.sqrt(prime))),
    Int32Array.from(primes, (prime) => fraction(Math.cbrt(prime))),
  ];
})();

const BLOCK = 64;
/** The schedule of the block at hand; nothing else runs meanwhile. */
const WORDS = new Int32Array(64);

export class Sha256 implements Hasher {
  readonly #state = START.slice();
  readonly #rest = new Uint8Array(BLOCK);
  #filled = 0;
  #length = 0;

  update(bytes: Uint8Array): this {
    this.#length += bytes.length;
    let at = 0;
    if (this.#filled > 0) {
      at = Math.min(BLOCK - this.#filled, bytes.length);
      this.#rest.set(bytes.subarray(0, at), this.#filled);
      this.#filled += at;
      if (this.#filled < BLOCK) return this;
      this.#blocks(this.#rest, 0, BLOCK);
    }
    const whole = bytes.length - ((bytes.length - at) % BLOCK);
    this.#blocks(bytes, at, whole);
    this.#rest.set(bytes.subarray(whole));
    this.#filled = bytes.length - whole;
    return this;
  }

  copy(): Sha256 {
    const copy = new Sha256();
    copy.#state.set(this.#state);
    copy.#rest.set(this.#rest);
    copy.#filled = this.#filled;
    copy.#length = this.#length;
    return copy;
  }

  digest(): Uint8Array {
    const bits = this.#length * 8;
    const padding = new Uint8Array((this.#filled < 56 ? 56 : 120) - this.#filled + 8);
    padding[0] = 0x80;
    const view = new DataView(padding.buffer);
    view.setUint32(padding.length - 8, Math.floor(bits / 2 ** 32));
    view.setUint32(padding.length - 4, bits >>> 0);
    this.update(padding);
    const result = new DataView(new ArrayBuffer(32));
    for (const [i, word] of this.#state.entries()) result.setInt32(4 * i, word);
    return new Uint8Array(result.buffer);
  }

  #blocks(bytes: Uint8Array, from: number, to: number): void {
    const w = WORDS;
    const state = this.#state;
    const k = ROUNDS;
    for (let at = from; at < to; at += BLOCK) {
      for (let i = 0, b = at; i < 16; i++, b += 4) {
        w[i] = (bytes[b]! << 24) | (bytes[b + 1]! << 16) | (bytes[b + 2]! << 8) | bytes[b + 3]!;
      }
      for (let i = 16; i < 64; i++) {
        const x = w[i - 15]!;
        const y = w[i - 2]!;
        const s0 = ((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3);
        const s1 = ((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10);
        w[i] = (((w[i - 16]! + s0) | 0) + ((w[i - 7]! + s1) | 0)) | 0;
      }
      let a = state[0]!;
      let b = state[1]!;
      let c = state[2]!;
      let d = state[3]!;
      let e = state[4]!;
      let f = state[5]!;
      let g = state[6]!;
      let h = state[7]!;
      for (let i = 0; i < 64; i++) {
        const s1 = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
        const t1 = (((h + s1) | 0) + (((e & f) ^ (~e & g)) | 0) + ((k[i]! + w[i]!) | 0)) | 0;
        const s0 = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
        const t2 = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
        h = g;
        g = f;
        f = e;
        e = (d + t1) | 0;
        d = c;
        c = b;
        b = a;
        a = (t1 + t2) | 0;
      }
      state[0]! += a;
      state[1]! += b;
      state[2]! += c;
      state[3]! += d;
      state[4]! += e;
      state[5]! += f;
      state[6]! += g;
      state[7]! += h;
    }
  }
}
