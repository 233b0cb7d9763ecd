import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import { Worker } from "node:worker_threads";
import { fetchFile } from "../../src/platform/node.ts";
import { owned } from "../../src/platform/node_ports.ts";
import { builds } from "../../src/wasm/builds.ts";
import { compile, instantiate } from "../../src/wasm/load.ts";
import { Pool, Workers } from "../../src/wasm/threads.ts";

const flavour = "threads-simd128";
const file = (name: string) => new URL(`../../dist/${name}`, import.meta.url);
const module = await compile(file(`${flavour}.wasm`), fetchFile);

/** An engine without its worker: the test is the host, the pool runs in workers of the built file. */
function engine(script = file("node-thread.js")) {
  const workers: Worker[] = [];
  const failures: Error[] = [];
  const spawn = () => {
    workers.push(new Worker(script));
    return owned(workers.at(-1)!);
  };
  const pool = new Pool(flavour, new Workers(spawn), (error) => failures.push(error));
  const { glue, memory } = instantiate(builds[flavour]!, module, { maximumBytes: 64 << 20, host: pool });
  return { glue, pool, memory, workers, failures };
}

const exits = (workers: Worker[]) => Promise.all(workers.map((worker) => once(worker, "exit")));

test("a pool starts and ends", { timeout: 30_000 }, async () => {
  const { glue, pool, workers, failures } = engine();
  await glue.initThreadPool!(3);
  assert.equal(workers.length, 3);
  const ended = exits(workers);
  pool.end();
  await ended;
  assert.deepEqual(failures, []);
});

test("a worker that hears a message loads nothing for it", { timeout: 30_000 }, async () => {
  for (const name of ["node-thread.js", "node-worker.js"]) {
    const script = `
      import { parentPort } from "node:worker_threads";
      import ${JSON.stringify(file(name).href)};
      const loaded = () => process.moduleLoadList.filter((name) => name.includes("undici"));
      parentPort.on("message", () => setImmediate(() => {
        const before = loaded();
        new Headers();
        parentPort.postMessage({ before, after: loaded().length > 0 });
      }));`;
    const worker = new Worker(new URL(`data:text/javascript,${encodeURIComponent(script)}`));
    // Not a message that either of them knows.
    worker.postMessage({ control: "read", id: 0 });
    const [found] = await once(worker, "message");
    await worker.terminate();
    assert.deepEqual(found, { before: [], after: true }, name);
  }
});

test("a pool worker that dies ends the pool, and is told of once", { timeout: 30_000 }, async () => {
  const { glue, workers, failures } = engine();
  await glue.initThreadPool!(3);
  const ended = exits(workers);
  await workers[1]!.terminate();
  await ended;
  assert.equal(failures.length, 1);
  assert.match(failures[0]!.message, /^a pool worker failed: the worker ended by itself/);
});

test("a pool worker that cannot start rejects the pool", { timeout: 30_000 }, async () => {
  const { glue, workers } = engine(file("nothing.js"));
  await assert.rejects(async () => glue.initThreadPool!(2), { code: "WorkerFailed", message: /nothing\.js/ });
  assert.equal(workers.length, 2);
});

test("a pool worker that traps poisons its team before it tells", { timeout: 30_000 }, async () => {
  const { memory, workers } = engine();
  const worker = new Worker(file("node-thread.js"));
  workers.push(worker);
  // Outside of the memory: taking its thread from there traps.
  worker.postMessage({ join: flavour, module, memory, receiver: 0x7fff_fff0, lock: "a lock" });
  // Node 24 has locks.
  let [ready] = await once(worker, "message");
  if (ready === "a lock") [ready] = await once(worker, "message");
  assert.equal(ready, "ready");
  const [reason] = await once(worker, "message");
  assert.match(reason, /out of bounds/);
  assert.notEqual(new Int32Array(memory.buffer)[poisonWord()], 0);
  await worker.terminate();
});

/** Where `poison()` leaves its mark, found by looking at another memory before and after. */
function poisonWord(): number {
  const { glue, memory } = engine();
  const before = new Int32Array(memory.buffer).slice();
  glue.poison();
  const word = new Int32Array(memory.buffer).findIndex((value, i) => value !== before[i]);
  assert.ok(word > 0, "poison() leaves a mark");
  assert.equal(before[word], 0);
  return word;
}
