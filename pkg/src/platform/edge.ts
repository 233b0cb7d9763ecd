import * as formats from "../constrain/formats.ts";
import type { Given, Platform } from "../host/platform.ts";
import * as maps from "../options/activation_map.ts";
import type { Port, WorkerPort } from "../rpc/port.ts";
import * as signals from "../signals/signals.ts";
import * as chats from "../text/chat.ts";
import * as gguf from "../text/from_gguf.ts";

/**
 * An engine in the caller's own thread, for runtimes that cannot start workers. Messages are delivered in turns of their own, as
 * between threads, so neither end notices the difference.
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
    // Also after the end: an abort of a load posts its message and ends the worker in the same turn.
    post: (message) => queueMicrotask(() => host.onmessage?.(message)),
    terminate() {
      over = true;
    },
    // In one thread the owner cannot notice that the engine hangs: it does not run then.
    hangSeconds: Number.POSITIVE_INFINITY,
  };
  const noWorkers = () => {
    throw new Error("there are no workers here");
  };
  const platform: Platform = {
    ownPort: () => host,
    spawnSibling: noWorkers,
    fetchFile: fetch,
    chats: async () => chats,
    gguf: async () => gguf,
    formats: async () => formats,
    maps: async () => maps,
    signals: async () => signals,
    cores: () => 1,
    freeMemory: () => null,
    // There is no worker to end: after the end, what is running never gets its next turn.
    turn: () => new Promise((resolve) => setTimeout(() => over || resolve(), 0)),
    given,
  };
  serve(platform, host);
  return outside;
}
