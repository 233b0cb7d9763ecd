/**
 * What plain loops over packed weights reach on this processor, which the engine's matrices are measured by: `node benches/plain.mjs` with
 * Node 22 or newer, rustc and its wasm target. plain.rs tells the loops. Those that multiply are checked against plain sums first. Prints the best of many
 * runs, on one thread and on two at once, from the second-level cache (400 kB) and from memory (160 MB a thread).
 */
import { cpus } from "node:os";
import { isMainThread, parentPort, Worker, workerData } from "node:worker_threads";
import { compiled } from "./compile.mjs";

const COLS = 2560;
const [CACHED, LARGE] = [400_000, 160_000_000];
/** Bits of a code, and planes of activations. */
const loops = { read: null, one_bit: { bits: 1, planes: 1 }, two_bits: { bits: 2, planes: 1 }, constants: { bits: 2, planes: 1 }, four_bits: { bits: 4, planes: 2 } };

/** An instance with room for input, results and weights of random bits. */
function instance(bytes) {
  const { memory, ...calls } = new WebAssembly.Instance(new WebAssembly.Module(bytes)).exports;
  const input = memory.buffer.byteLength;
  const out = input + 2 * COLS;
  // Results of 1-bit codes: 32 rows of four bytes for each COLS / 8 · 32 bytes.
  const weights = Math.ceil((out + LARGE / 64) / 4096) * 4096;
  memory.grow(Math.ceil((weights + LARGE - input) / 65536));
  const all = new Uint32Array(memory.buffer, weights, LARGE / 4);
  let seed = 7;
  for (let i = 0; i < all.length; i++) all[i] = seed = (Math.imul(seed, 1_664_525) + 1_013_904_223) >>> 0;
  // One plane is signed, of two the second has seven bits.
  const x = new Int8Array(memory.buffer, input, 2 * COLS);
  for (let i = 0; i < x.length; i++) x[i] = i < COLS ? ((i * 37) % 127) - 63 : (i * 11) % 128;
  return { memory, input, out, weights, run: (loop, size) => calls[loop](weights, size, input, out) };
}

/** Throws where the rows of the first tile are not what plain sums give. */
function check({ memory, input, out, weights, run }, loop) {
  const { bits, planes } = loops[loop];
  const vectors = Math.min(bits, 2);
  const each = 8 / bits;
  run(loop, (COLS / 4) * 16 * vectors);
  const codes = new Uint8Array(memory.buffer, weights);
  const x = new Int8Array(memory.buffer, input, 2 * COLS);
  const found = new Int32Array(memory.buffer, out);
  for (let row = 0; row < vectors * each * 4; row++) {
    const [vector, plane, lane] = [Math.floor(row / 4 / each), Math.floor(row / 4) % each, row % 4];
    let sum = 0;
    for (let k = 0; k < COLS; k++) {
      const byte = codes[((k >> 2) * vectors + vector) * 16 + lane * 4 + (k & 3)];
      sum += ((byte >> (bits * plane)) & ((1 << bits) - 1)) * (planes === 2 ? 128 * x[k] + x[COLS + k] : x[k]);
    }
    if (found[row] !== sum) throw new Error(`${loop}: row ${row} is ${found[row]}, not ${sum}`);
  }
}

function work({ bytes, gate, threads }) {
  const own = instance(bytes);
  parentPort.on("message", ({ loop, size, passes, turn }) => {
    // All begin at once.
    Atomics.add(gate, 0, 1);
    while (Atomics.load(gate, 0) < threads * turn);
    const begun = performance.now();
    for (let i = 0; i < passes; i++) own.run(loop, size);
    parentPort.postMessage(performance.now() - begun);
  });
  parentPort.postMessage(0);
}

/** GB/s of some threads together, the best of many runs. */
async function rates(bytes, threads) {
  const gate = new Int32Array(new SharedArrayBuffer(4));
  const team = Array.from({ length: threads }, () => new Worker(new URL(import.meta.url), { workerData: { bytes, gate, threads } }));
  const answer = (worker) => new Promise((resolve) => worker.once("message", resolve));
  await Promise.all(team.map(answer));
  const found = {};
  let turn = 0;
  for (const loop of Object.keys(loops)) {
    for (const [place, size, passes, runs] of [["cache", CACHED, 40, 60], ["memory", LARGE, 1, 15]]) {
      let best = 0;
      for (let i = 0; i < runs; i++) {
        turn += 1;
        const answers = team.map((worker) => answer(worker));
        for (const worker of team) worker.postMessage({ loop, size, passes, turn });
        best = Math.max(best, (threads * size * passes) / Math.max(...(await Promise.all(answers))) / 1e6);
      }
      found[loop] = { ...found[loop], [place]: best };
    }
  }
  await Promise.all(team.map((worker) => worker.terminate()));
  return found;
}

if (isMainThread) {
  const bytes = compiled("plain.rs");
  const own = instance(bytes);
  for (const loop of Object.keys(loops)) if (loops[loop]) check(own, loop);
  console.log(`${cpus()[0].model}, ${process.version}`);
  console.log("threads  loop       cache: GB/s, 10⁹ products/s   memory: GB/s, 10⁹ products/s");
  for (const threads of [1, 2]) {
    for (const [loop, found] of Object.entries(await rates(bytes, threads))) {
      const each = (gb) => `${gb.toFixed(1).padStart(6)}${loops[loop] ? ((8 / loops[loop].bits) * gb).toFixed(1).padStart(8) : "".padStart(8)}`;
      console.log(`${threads}        ${loop.padEnd(10)} ${each(found.cache)}                  ${each(found.memory)}`);
    }
  }
} else work(workerData);
