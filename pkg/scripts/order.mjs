/**
 * Orders the functions of a module so that those alike stand together. gzip and brotli at usual settings find repetitions
 * within the last 32 kB; the linker's order has nothing to do with that. The module does the same, and is 4 % smaller compressed.
 *
 * Likeness is the share of a function's runs of 7 bytes that the last 31 kB hold as well; the next function is always the one
 * with the largest share.
 */

import { gzipSync } from "node:zlib";

const RUN = 7;
const WINDOW = 31_000;
/**
 * Added to each length, so that small functions that are found anywhere do not all come first. Which is best differs from module to
 * module, by half a kilobyte: the order that gzip makes smallest is taken.
 */
const HEADERS = [500, 700, 800, 900, 1000, 1200, 1400, 2000, 3200, 5000];

/** The text of a module with its functions in the new order. `module` is its binary form, of the same functions. */
export function ordered(wat, module) {
  const { before, functions, after } = split(wat);
  const bodies = codeOf(module);
  if (functions.length !== bodies.length) {
    throw new Error(`${functions.length} functions in the text of a module with ${bodies.length}`);
  }
  return [before, ...order(bodies).map((index) => functions[index]), after].join("");
}

/** wasm-dis writes one function after the other, each from a line of its own on, behind everything else. */
function split(wat) {
  const [before, ...functions] = wat.split(/^(?= \(func )/m);
  const end = functions.at(-1).search(/^(?: ;;|\))/m);
  const after = functions.at(-1).slice(end);
  functions.push(functions.pop().slice(0, end));
  return { before, functions, after };
}

/** The bodies of a module's functions. */
function codeOf(module) {
  let at = 8;
  const number = () => {
    for (let value = 0, shift = 0; ; shift += 7) {
      const byte = module[at++];
      value += (byte & 127) * 2 ** shift;
      if (byte < 128) return value;
    }
  };
  const piece = () => {
    const length = number();
    at += length;
    return module.subarray(at - length, at);
  };
  for (const CODE = 10; module[at++] !== CODE; ) piece();
  number(); // the section's length
  return Array.from({ length: number() }, piece);
}

function order(bodies) {
  const runs = sharedRuns(bodies);
  const orders = HEADERS.map((header) => orderBy(bodies, runs, header));
  const sizes = orders.map((indices) => gzipSync(Buffer.concat(indices.map((index) => bodies[index]))).length);
  return orders[sizes.indexOf(Math.min(...sizes))];
}

function orderBy(bodies, { runsOf, ownersOf }, header) {
  const held = new Int32Array(ownersOf.length);
  const shared = new Int32Array(bodies.length);
  const enter = (index) => {
    for (const run of runsOf[index]) if (held[run]++ === 0) for (const owner of ownersOf[run]) shared[owner]++;
  };
  const leave = (index) => {
    for (const run of runsOf[index]) if (--held[run] === 0) for (const owner of ownersOf[run]) shared[owner]--;
  };

  const left = new Set(bodies.keys());
  const placed = [];
  let [first, bytes] = [0, 0];
  while (left.size > 0) {
    const next = bestOf(left, (index) => shared[index] / (bodies[index].length + header));
    left.delete(next);
    placed.push(next);
    enter(next);
    bytes += bodies[next].length;
    for (; first < placed.length - 1 && bytes - bodies[placed[first]].length >= WINDOW; first++) {
      bytes -= bodies[placed[first]].length;
      leave(placed[first]);
    }
  }
  return placed;
}

function bestOf(indices, value) {
  let [best, most] = [-1, -1];
  for (const index of indices) {
    const worth = value(index);
    if (worth > most) [best, most] = [index, worth];
  }
  return best;
}

/** Runs that more than one function has: those of each function, and the functions of each. */
function sharedRuns(bodies) {
  const owners = new Map();
  const all = bodies.map((body, index) => {
    const runs = new Set();
    for (let at = 0; at + RUN <= body.length; at++) runs.add(hashOf(body, at));
    for (const run of runs) owners.get(run)?.push(index) ?? owners.set(run, [index]);
    return runs;
  });
  const number = new Map();
  for (const [run, indices] of owners) if (indices.length > 1) number.set(run, number.size);
  return {
    runsOf: all.map((runs) =>
      Int32Array.from(
        [...runs].filter((run) => number.has(run)),
        (run) => number.get(run),
      ),
    ),
    ownersOf: [...number.keys()].map((run) => Int32Array.from(owners.get(run))),
  };
}

/** Of a run of bytes; two that share one by chance change the order a little, and nothing else. */
function hashOf(bytes, at) {
  let hash = 0;
  for (let i = at; i < at + RUN; i++) hash = Math.imul(hash ^ bytes[i], 0x9e3779b1) ^ (hash >>> 15);
  hash = Math.imul(hash ^ (hash >>> 13), 0x85ebca6b);
  return (hash ^ (hash >>> 16)) >>> 0;
}
