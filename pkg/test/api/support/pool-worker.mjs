/** The engine's worker as it is, and a way to see its pool from outside and to let it die. */
import { createRequire, syncBuiltinESMExports } from "node:module";

const threads = createRequire(import.meta.url)("node:worker_threads");
const pool = [];
threads.Worker = class extends threads.Worker {
  constructor(...args) {
    super(...args);
    pool.push(this);
  }
};
syncBuiltinESMExports();

const orders = new BroadcastChannel(threads.workerData.orders);
orders.onmessage = ({ data }) => {
  if (data === "end a thread") pool.at(-1).terminate();
  if (data === "end") process.exit(3);
};
orders.unref();

await import("../../../dist/node-worker.js");
