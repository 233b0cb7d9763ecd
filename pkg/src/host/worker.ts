/** A worker becomes the engine's host, one of its threads, or a compiler of response formats, depending on its first message. */

import { isOpening, type Opening } from "../constrain/opening.ts";
import type { Port } from "../rpc/port.ts";
import { builds } from "../wasm/builds.ts";
import { isJoin, work } from "../wasm/threads.ts";
import type { Platform } from "./platform.ts";
import { serve } from "./serve.ts";

export function startWorker(platform: Platform): void {
  const port = platform.ownPort();
  port.onmessage = (message) => {
    if (isJoin(message)) return work(message, port, builds);
    if (isOpening(message)) return void becomeCompiler(platform, message, port);
    serve(platform, port);
    port.onmessage?.(message);
  };
}

/** Formats that come before the library is there wait for it. */
async function becomeCompiler(platform: Platform, opening: Opening, port: Port): Promise<void> {
  const early: unknown[] = [];
  port.onmessage = (message) => early.push(message);
  const { compileFor } = await platform.formats();
  compileFor(opening, port);
  for (const message of early) port.onmessage(message);
}
