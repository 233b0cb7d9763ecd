/** Several completions of one prompt, as one stream of pieces. */

import { ALL_PIECES } from "../rpc/backpressure.ts";
import type { GenerateSettings } from "../rpc/protocol.ts";
import type { Piece } from "../types/index.ts";
import type { Feed } from "./generation.ts";

/** The largest seed; the one after it is 0. */
const MAX_SEED = Number.MAX_SAFE_INTEGER;

/** Begins `n` generations, each with a seed of its own. They begin together, so that the engine computes their prompt once. */
export function together(
  n: number,
  settings: GenerateSettings,
  begin: (settings: GenerateSettings, push: (pieces: Piece[]) => void) => Feed,
  push: (pieces: Piece[]) => void,
): Feed {
  /** To which generation each piece that came belongs, in order. */
  const order: number[] = [];
  const read = new Array<number>(n).fill(0);
  const feeds = read.map((_, index) => {
    const { seed } = settings;
    const own =
      seed === undefined
        ? settings
        : { ...settings, seed: seed <= MAX_SEED - index ? seed + index : index - (MAX_SEED - seed) - 1 };
    return begin(own, (pieces) => {
      for (const _ of pieces) order.push(index);
      push(pieces.map((piece) => ({ ...piece, index })));
    });
  });
  const stop = () => {
    for (const feed of feeds) feed.stop();
  };
  const all = Promise.all(feeds.map((feed) => feed.finished));
  // Where one fails, the others are not needed any more.
  all.catch(stop);
  return {
    finished: all.then((choices) => ({ ...choices[0]!, choices })),
    stop,
    read(pieces) {
      const open = pieces === ALL_PIECES;
      for (const index of order.splice(0, pieces - read.reduce((sum, one) => sum + one))) read[index]!++;
      for (const [index, feed] of feeds.entries()) feed.read(open ? pieces : read[index]!);
    },
    signal: feeds[0]!.signal,
  };
}
