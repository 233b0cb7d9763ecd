/** What the model computes for given tokens, without generating any: logits, embeddings, perplexity. */

import type { VerbName } from "../../rpc/protocol.ts";
import { partsOf } from "../../text/parts.ts";
import { EngineError } from "../../types/errors.ts";
import type { AdapterUse, TokenLogprobs } from "../../types/index.ts";
import { likeliest } from "../answer.ts";
import type { CallContext, Handler } from "../call.ts";
import { type Gather, once } from "../request.ts";
import type { HostState } from "../state.ts";

export const logits: Handler<"logits"> = (state, { ids, all, adapters }, context) =>
  logitsOf(state, ids, all, context, adapters);

/** Logits of the last position, or of all. */
export function logitsOf(
  state: HostState,
  ids: number[],
  all: boolean,
  context: CallContext<VerbName>,
  adapters?: readonly AdapterUse[],
): Promise<Float32Array[]> {
  const rows: Float32Array[] = [];
  const gather: Gather<Float32Array[]> = {
    event: (event) => event.type === "logits" && rows.push(event.logits),
    result: () => rows,
  };
  return once(state, ids, { type: "logits", all }, context, gather, adapters);
}

/** One entry for each id but the first. */
export const promptLogprobs: Handler<"promptLogprobs"> = (state, { ids, logprobs, adapters }, context) => {
  const found: TokenLogprobs[] = [];
  const gather: Gather<TokenLogprobs[]> = {
    event(event) {
      if (event.type !== "logprobs") return;
      const { chosen, ids: likely, top } = event;
      found.push({ token: ids[found.length + 1]!, logprob: chosen, top: likeliest(likely, top) });
    },
    result: () => found,
  };
  return once(state, ids, { type: "score", logprobs }, context, gather, adapters);
};

/** As many texts are under way at once as the engine computes together. */
export const embed: Handler<"embed"> = async (state, args, context) => {
  const { texts, normalize, adapters } = args;
  const { text, info } = state.model;
  const mean = (args.pooling ?? text.pooling) === "mean";
  const rows: Float32Array[] = [];
  const one = (ids: number[], option: string) => {
    let row: Float32Array = new Float32Array();
    const gather: Gather<Float32Array> = {
      event(event) {
        if (event.type === "embedded") row = event.embedding;
      },
      result: () => (normalize ? unit(row) : row),
    };
    return once(state, ids, { type: "embed", mean }, context, gather, adapters, { option });
  };
  // One iterator for all lanes: a lane that fails ends it, so that the others begin nothing more.
  const each = (function* () {
    yield* texts.entries();
  })();
  const lane = async () => {
    for (const [i, from] of each) {
      const ids = typeof from === "string" ? text.tokenizer.encode(from) : from;
      rows[i] = await one(ids, `texts[${i}]`);
    }
  };
  const lanes = Array.from({ length: Math.min(info.maxSequences, texts.length) }, lane);
  try {
    await Promise.all(lanes);
  } finally {
    // A call that failed leaves the queue before its caller hears of it.
    await Promise.allSettled(lanes);
  }
  return rows;
};

export const perplexity: Handler<"perplexity"> = async (state, args, context) => {
  const { text, window, adapters } = args;
  const { text: side, info } = state.model;
  const ids = [...partsOf(text)].flatMap((part) => side.tokenizer.encode(part, { addSpecial: false }));
  const size = Math.min(window, info.contextLength);
  let [nll, tokens] = [0, 0];
  const gather: Gather<null> = {
    event(event) {
      if (event.type !== "scored") return;
      nll += event.nll;
      tokens += event.tokens;
    },
    result: () => null,
  };
  for (let at = 0; at < ids.length; at += size) {
    const part = ids.slice(at, at + size);
    if (part.length >= 2) await once(state, part, { type: "score" }, context, gather, adapters);
  }
  if (tokens === 0)
    throw new EngineError("InvalidArgument", "perplexity: the text has fewer than two tokens", { option: "text" });
  return { perplexity: Math.exp(nll / tokens), nll: nll / tokens, tokens };
};

/** The same direction with length 1. */
function unit(row: Float32Array): Float32Array {
  const length = Math.sqrt(row.reduce((sum, value) => sum + value * value, 0));
  return length > 0 ? row.map((value) => value / length) : row;
}
