/** A worker that becomes one of the engine's threads, and nothing else. */

import type { Port } from "../rpc/port.ts";
import { builds } from "../wasm/builds.ts";
import { isJoin, work } from "../wasm/threads.ts";

export function startThread(port: Port): void {
  port.onmessage = (message) => {
    if (isJoin(message)) void work(message, port, builds);
  };
}
