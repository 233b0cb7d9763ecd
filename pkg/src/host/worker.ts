/** A worker becomes the engine's host, one of its threads, or a compiler of response formats, depending on its first message. */

import { isOpening } from "../constrain/opening.ts";
import { builds } from "../wasm/builds.ts";
import { isJoin, work } from "../wasm/threads.ts";
import type { Platform } from "./platform.ts";
import { serve } from "./serve.ts";

export function startWorker(platform: Platform): void {
  const port = platform.ownPort();
  port.onmessage = (message) => {
    if (isJoin(message)) return work(message, port, builds);
    if (isOpening(message)) {
      // What asks for a format waits until the compiler is ready.
      void platform.formats().then(({ compileFor }) => compileFor(message, port));
      return;
    }
    serve(platform, port);
    port.onmessage?.(message);
  };
}
