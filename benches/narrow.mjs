/**
 * Whether int4 or int2 activations could be multiplied faster than as 8 bits: `node benches/narrow.mjs` with Node 22 or newer, rustc and its wasm target.
 * narrow.rs tells the ways. Each is checked against plain sums first. Prints 10⁹ products a second of one thread, the best of many runs,
 * on weights that the second-level cache holds.
 */
import { cpus } from "node:os";
import { compiled } from "./compile.mjs";

const [ROWS, COLS, RUNS, REPEAT] = [256, 2560, 60, 40];

let seed = 7;
const random = (below) => {
  seed = (Math.imul(seed, 1_664_525) + 1_013_904_223) >>> 0;
  return (seed >>> 8) % below;
};

const wasm = new WebAssembly.Instance(new WebAssembly.Module(compiled("narrow.rs"))).exports;
const weights = Array.from({ length: ROWS }, () => Array.from({ length: COLS }, () => random(3) - 1));
const narrow = { 2: Array.from({ length: COLS }, () => random(3) - 1), 4: Array.from({ length: COLS }, () => random(15) - 7) };

/** Sets the code (0 to 2) of each weight, whose place `at` tells as byte and bit. */
function packCodes(bytes, at) {
  for (let row = 0; row < ROWS; row++) {
    for (let col = 0; col < COLS; col++) {
      const [byte, bit] = at(row % 32, col);
      bytes[(row >> 5) * COLS * 8 + byte] |= (weights[row][col] + 1) << bit;
    }
  }
}

/** Where 16-bit words lie whose bit is `bit`. */
const word = (row, col, bit) => [(col >> 2) * 32 + ((col >> 1) & 1) * 16 + (row % 4) * 4 + (col & 1) * 2 + (bit >> 3), bit % 8];

function packBits(bytes, row, at, isSet) {
  for (let col = 0; col < COLS; col++) if (isSet(col)) bytes[row + (col >> 7) * at.each + at.from + ((col & 127) >> 3)] |= 1 << (col & 7);
}

function packPlanes(bytes) {
  for (let row = 0; row < ROWS; row++) {
    packBits(bytes, (row * COLS) / 4, { each: 32, from: 0 }, (col) => weights[row][col] > 0);
    packBits(bytes, (row * COLS) / 4, { each: 32, from: 16 }, (col) => weights[row][col] < 0);
  }
}

const wide = (bytes, x) => new Int16Array(bytes.buffer, bytes.byteOffset, COLS).set(x);
const ways = {
  dot4: {
    bits: 4,
    weights: (bytes) => packCodes(bytes, (row, col) => [(col >> 2) * 32 + (row >> 4) * 16 + (row % 4) * 4 + (col & 3), 2 * ((row >> 2) & 3)]),
    input: (bytes, x) => new Int8Array(bytes.buffer, bytes.byteOffset, COLS).set(x),
    coded: true,
  },
  dot2: { bits: 4, weights: (bytes) => packCodes(bytes, (row, col) => word(row, col, 2 * (row >> 2))), input: wide, coded: true },
  pairs: { bits: 4, weights: (bytes) => packCodes(bytes, (row, col) => word(row, col, 2 * ((row >> 2) & 3) + 8 * (row >> 4))), input: wide, coded: true },
  planes4: {
    bits: 4,
    weights: packPlanes,
    input(bytes, x) {
      for (let plane = 0; plane < 4; plane++) packBits(bytes, 0, { each: 64, from: 16 * plane }, (col) => (x[col] >> plane) & 1);
    },
  },
  planes2: {
    bits: 2,
    weights: packPlanes,
    input(bytes, x) {
      packBits(bytes, 0, { each: 32, from: 0 }, (col) => x[col] > 0);
      packBits(bytes, 0, { each: 32, from: 16 }, (col) => x[col] < 0);
    },
  },
};

console.log(cpus()[0].model);
const rates = {};
for (const [name, { bits, weights: pack, input, coded }] of Object.entries(ways)) {
  const x = narrow[bits];
  const [w, a] = [new Uint8Array(wasm.memory.buffer, wasm.weights(), (ROWS * COLS) / 4), new Uint8Array(wasm.memory.buffer, wasm.input(), 2 * COLS)];
  w.fill(0);
  a.fill(0);
  pack(w);
  input(a, x);
  wasm[name]();
  const out = new Int32Array(wasm.memory.buffer, wasm.out(), ROWS);
  const offset = coded ? x.reduce((sum, value) => sum + value, 0) : 0;
  for (let row = 0; row < ROWS; row++) {
    const expected = weights[row].reduce((sum, weight, col) => sum + weight * x[col], 0);
    if (out[row] - offset !== expected) throw new Error(`${name}: row ${row} is ${out[row] - offset}, not ${expected}`);
  }
  rates[name] = 0;
  for (let run = 0; run < RUNS; run++) {
    const begun = performance.now();
    for (let i = 0; i < REPEAT; i++) wasm[name]();
    rates[name] = Math.max(rates[name], (ROWS * COLS * REPEAT) / (performance.now() - begun) / 1e6);
  }
  console.log(`${name.padEnd(8)} int${bits}  ${rates[name].toFixed(1).padStart(6)}  ${(rates[name] / rates.dot4).toFixed(2)} of dot4`);
}
