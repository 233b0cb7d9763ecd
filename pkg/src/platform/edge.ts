import type { Given, Platform } from "../host/platform.ts";
import type { Port, WorkerPort } from "../rpc/port.ts";

/**
 * An engine in the caller's own thread, where no worker can be started. Messages take the turns that they would take
 * between threads, so neither end notices.
 */
export function spawnEngine(given: Given, serve: (platform: Platform, port: Port) => void): WorkerPort {
  let over = false;
  const host: Port = {
    onmessage: null,
    post: (message) => queueMicrotask(() => over || outside.onmessage?.(message)),
  };
  const outside: WorkerPort = {
    onmessage: null,
    onerror: null,
    // Also after the end: whoever aborts a load ends its worker in the same breath.
    post: (message) => queueMicrotask(() => host.onmessage?.(message)),
    terminate() {
      over = true;
    },
    // In one thread nobody is there to see the other hang.
    patience: Number.POSITIVE_INFINITY,
  };
  const noWorkers = () => {
    throw new Error("there are no workers here");
  };
  const platform: Platform = {
    ownPort: () => host,
    spawnSibling: noWorkers,
    fetchFile: fetch,
    cores: () => 1,
    freeMemory: () => null,
    // What runs when the owner has gone goes no further: there is no worker to end.
    turn: () => new Promise((resolve) => setTimeout(() => over || resolve(), 0)),
    given,
  };
  serve(platform, host);
  return outside;
}
