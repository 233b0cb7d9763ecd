/** How a worker becomes a compiler of response formats. */

/** Every token's bytes in a row, the length of each, and which are no text or end an answer. */
export interface VocabularyData {
  bytes: Uint8Array;
  lengths: Uint32Array;
  special: Uint32Array;
  ends: Uint32Array;
}

/** The first message of a worker that becomes a compiler. */
export interface Opening {
  constrain: WebAssembly.Module;
  vocabulary: VocabularyData;
}

export const isOpening = (message: unknown): message is Opening =>
  typeof message === "object" && message !== null && "constrain" in message;
