/** `preprocess: "safe"`: what a reader does not see, or sees once, and a tokenizer spends many ids on. */

const INVISIBLE = /\u00AD|\u200B|\u200D|\u2060|\uFEFF|[\uFE00-\uFE0F]|[\u{E0100}-\u{E01EF}]/gu;
const EMOJI = String.raw`(?:\p{Regional_Indicator}{2}|\p{Extended_Pictographic}\p{Emoji_Modifier}?)`;
const EMOJI_RUN = new RegExp(String.raw`(${EMOJI})(?:\s*${EMOJI})+`, "gu");

/**
 * Without soft hyphens, zero-width spaces and joiners, and variation selectors; of emoji in a row the first; of spaces in a row
 * one, of empty lines one.
 */
export function safe(text: string): string {
  return text
    .replace(INVISIBLE, "")
    .replace(EMOJI_RUN, "$1")
    .replace(/[^\S\n]+/g, " ")
    .replace(/ ?\n ?/g, "\n")
    .replace(/\n{3,}/g, "\n\n");
}
