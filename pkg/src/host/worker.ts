/** A worker becomes the engine's host or one of its threads, depending on its first message. */

import { builds } from "../wasm/builds.ts";
import { isJoin, work } from "../wasm/threads.ts";
import type { Platform } from "./platform.ts";
import { serve } from "./serve.ts";

export function startWorker(platform: Platform): void {
  const port = platform.ownPort();
  port.onmessage = (message) => {
    if (isJoin(message)) return work(message, port, builds);
    serve(platform, port);
    port.onmessage?.(message);
  };
}
