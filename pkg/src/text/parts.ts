/** Long texts, which are encoded in parts. */

import { MAX_TEXT } from "./limits.ts";

/** Parts that can be encoded at once, cut where a line ends; within a line that is longer. */
export function* partsOf(text: string, most = MAX_TEXT): Generator<string, void> {
  for (let at = 0; at < text.length; ) {
    const end = text.length - at <= most ? text.length : cutOf(text, at, most);
    yield text.slice(at, end);
    at = end;
  }
}

function cutOf(text: string, from: number, most: number): number {
  const line = text.lastIndexOf("\n", from + most - 1) + 1;
  if (line > from) return line;
  // A pair of surrogates is one character.
  return from + most - (/[\ud800-\udbff]/.test(text[from + most - 1]!) ? 1 : 0);
}
