/** The engine's end of a port: receives calls and controls, posts events, results and errors. One host holds one model. */

import { REFUSALS, type Recorder } from "../metrics/recorder.ts";
import type { Port } from "../rpc/port.ts";
import type { Call, Control, Ended, ErrorData, Reply, VerbName } from "../rpc/protocol.ts";
import type { CallContext } from "./call.ts";
import type { Platform } from "./platform.ts";
import { HostState } from "./state.ts";
import { Timeline } from "./timeline.ts";
import { verbs } from "./verbs/table.ts";

/** Calls that leave the engine alone. */
const SIDE: ReadonlySet<VerbName> = new Set(["tokenize", "detokenize", "metrics", "statistics"]);
/** Calls that are requests: what they end with is counted. */
const REQUESTS: ReadonlySet<VerbName> = new Set(["generate", "logits", "embed", "perplexity", "promptLogprobs"]);

interface Running {
  abort: AbortController;
  context: CallContext<VerbName>;
}

export function serve(platform: Platform, port: Port): void {
  const calls = new Map<number, Running>();
  const post = (reply: Reply, transfer?: Transferable[]) => port.post(reply, transfer);
  const timeline = new Timeline((spans) => post({ spans }));
  const state = new HostState(platform, timeline, {
    onFatal: (error) => post({ fatal: toData(error) }),
    threads: {
      onThread: (life) => post({ thread: life }, typeof life === "string" ? [] : [life]),
      onThreadsEnded: () => post({ thread: null }),
    },
  });

  port.onmessage = (data) => {
    const message = data as Call | Control;
    if (!("control" in message)) return void answer(message);
    const running = calls.get(message.id);
    switch (message.control) {
      case "ping":
        return post({ id: message.id, event: null });
      case "stop":
        return running?.context.onStop?.();
      case "read":
        return running?.context.onRead?.(message.pieces);
      case "supply":
        return running?.context.onSupply?.(message.logits);
      case "abort":
        return running?.abort.abort();
    }
  };

  async function answer({ id, verb, args }: Call): Promise<void> {
    const abort = new AbortController();
    const context: CallContext<VerbName> = {
      signal: abort.signal,
      onStop: null,
      onRead: null,
      onSupply: null,
      send: (event, transfer) => post({ id, event }, transfer),
    };
    calls.set(id, { abort, context });
    const ended: Recorder["ended"] = (...how) => REQUESTS.has(verb) && state.recorder?.ended(...how);
    if (!SIDE.has(verb)) state.idle?.stop();
    try {
      // A verb's arguments and its handler have one type; TypeScript cannot follow that through a union of all verbs.
      const handler = verbs[verb] as (state: HostState, args: unknown, context: unknown) => unknown;
      const result = await handler(state, args, context);
      ended(verb, (result as Ended | null)?.finished?.finishReason ?? "done");
      post({ id, result }, transfers(result));
    } catch (error) {
      const { code = "Internal" } = error as ErrorData;
      const { aborted } = abort.signal;
      ended(verb, aborted ? "aborted" : REFUSALS.includes(code) ? "refused" : "error", aborted ? undefined : code);
      post({ id, error: toData(error) });
    } finally {
      calls.delete(id);
    }
  }
}

/** Rows of logits and saved sessions are large, and this end does not need them any more: they move instead of being copied. */
function transfers(result: unknown): Transferable[] {
  if (result instanceof Uint8Array) return [result.buffer as ArrayBuffer];
  return Array.isArray(result) && result[0] instanceof Float32Array
    ? result.map((row: Float32Array) => row.buffer as ArrayBuffer)
    : [];
}

function toData(error: unknown): ErrorData {
  const { code, message, detail, stack } = (error ?? {}) as ErrorData;
  if (typeof code === "string" && typeof message === "string") {
    return { code, message, ...(detail ? { detail } : {}), ...(stack ? { stack } : {}) };
  }
  return { message: error instanceof Error ? error.message : String(error), ...(stack ? { stack } : {}) };
}
