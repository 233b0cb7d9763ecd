/** What this runtime's WebAssembly can do. `pick` decides from it, and so can be tested without any runtime. */
export interface Features {
  simd128: boolean;
  /**
   * `wrong` does occur: Node 20 accepts relaxed SIMD behind a flag and computes its dot product wrongly. Ternary codes
   * always fit in 7 bits, so an implementation of the proposal has one right answer.
   */
  relaxed: "exact" | "wrong" | "absent";
  /** Why memory cannot be shared with workers, in words; null where it can. */
  unshared: string | null;
}

export function probe(): Features {
  return {
    simd128: WebAssembly.validate(dot128),
    relaxed: relaxed(),
    unshared: whyUnshared(globalThis),
  };
}

export function whyUnshared(scope: { crossOriginIsolated?: boolean; SharedArrayBuffer?: unknown }): string | null {
  // Runtimes without pages have no isolation: there the property is undefined.
  if (scope.crossOriginIsolated === false) {
    return "the page is not cross-origin isolated (headers Cross-Origin-Opener-Policy: same-origin and Cross-Origin-Embedder-Policy: require-corp)";
  }
  if (scope.SharedArrayBuffer === undefined) return "this runtime has no SharedArrayBuffer";
  if (!WebAssembly.validate(atomics)) return "this runtime's WebAssembly has no threads";
  return null;
}

function relaxed(): Features["relaxed"] {
  if (!WebAssembly.validate(relaxedDot)) return "absent";
  try {
    return relaxedDotIsExact() ? "exact" : "wrong";
  } catch {
    return "absent"; // a content security policy forbids wasm: loading the engine will say so
  }
}

/** Runs the instruction on operands whose products differ in every lane, extremes included. */
function relaxedDotIsExact(): boolean {
  const memory = new WebAssembly.Memory({ initial: 1 });
  const instance = new WebAssembly.Instance(new WebAssembly.Module(relaxedDot), { "": { memory } });
  const bytes = new Int8Array(memory.buffer);
  const words = new Int32Array(memory.buffer);
  let exact = true;
  for (const [fullRange, sevenBit] of operands) {
    bytes.set(fullRange, 0);
    bytes.set(sevenBit, 16);
    const sums = [1, -2, 1 << 30, -(1 << 30)];
    words.set(sums, 8);
    (instance.exports.run as () => void)();
    for (const [lane, sum] of sums.entries()) {
      let expected = sum;
      for (let i = 4 * lane; i < 4 * lane + 4; i++) expected += fullRange[i]! * sevenBit[i]!;
      exact &&= words[12 + lane] === expected;
    }
  }
  return exact;
}

const lanes = (value: (i: number) => number) => Int8Array.from({ length: 16 }, (_, i) => value(i));
const operands: [Int8Array, Int8Array][] = [
  [lanes((i) => (i % 2 ? 127 : -128)), lanes((i) => 127 - i)],
  [lanes(() => -128), lanes(() => 127)],
  [lanes((i) => 37 * i - 100), lanes((i) => i % 3)],
];

// (func (result v128) (i32x4.dot_i16x8_s (i32x4.splat (i32.const 0)) (i32x4.splat (i32.const 0))))
const dot128 = wasm(
  [1, 5, 1, 0x60, 0, 1, 0x7b],
  [3, 2, 1, 0],
  body(0x41, 0, 0xfd, 0x11, 0x41, 0, 0xfd, 0x11, 0xfd, 0xba, 0x01),
);

// (import "" "memory" (memory 1)) (func (export "run") (v128.store offset=48 (i32.const 0)
//   (i32x4.relaxed_dot_i8x16_i7x16_add_s (v128.load (i32.const 0)) (v128.load offset=16 …) (v128.load offset=32 …))))
const relaxedDot = wasm(
  [1, 4, 1, 0x60, 0, 0],
  [2, 12, 1, 0, 6, ...text("memory"), 2, 0, 1],
  [3, 2, 1, 0],
  [7, 7, 1, 3, ...text("run"), 0, 0],
  body(0x41, 0, ...load(0), ...load(16), ...load(32), 0xfd, 0x93, 0x02, 0xfd, 0x0b, 0, 48),
);

// (memory 1 1 shared) (func (atomic.fence))
const atomics = wasm([1, 4, 1, 0x60, 0, 0], [3, 2, 1, 0], [5, 4, 1, 3, 1, 1], body(0xfe, 0x03, 0));

function wasm(...sections: number[][]): Uint8Array<ArrayBuffer> {
  return Uint8Array.from([0, ...text("asm"), 1, 0, 0, 0, ...sections.flat()]);
}

/** A code section of one function without locals. */
function body(...instructions: number[]): number[] {
  const size = instructions.length + 2;
  return [10, size + 2, 1, size, 0, ...instructions, 0x0b];
}

function load(offset: number): number[] {
  return [0x41, 0, 0xfd, 0x00, 0, offset];
}

function text(name: string): number[] {
  return [...name].map((letter) => letter.charCodeAt(0));
}
