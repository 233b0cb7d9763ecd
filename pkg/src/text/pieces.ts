/** What a token adds to a text, in bytes: the decoder of tokenizer.json, taken apart token by token. */

import { bad, grows, parts } from "./library.ts";
import { MAX_PIECE } from "./limits.ts";
import type { Part } from "./tokenizer_json.ts";

export interface Pieces {
  /** The bytes of a token of the vocabulary. */
  bytes(token: string): Uint8Array;
  /** The bytes of an added token, whose content is plain text. */
  added(content: string): Uint8Array;
  /** Spaces dropped at the very start of a text, at most. */
  leadingSpaces: number;
}

const utf8 = new TextEncoder();

/** The 256 printable characters that stand for bytes in byte-level vocabularies. */
export const BYTE_OF: ReadonlyMap<string, number> = byteAlphabet();

function byteAlphabet(): Map<string, number> {
  const printable = (byte: number) => (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
  const alphabet = new Map<string, number>();
  let next = 256;
  for (let byte = 0; byte < 256; byte++) alphabet.set(String.fromCharCode(printable(byte) ? byte : next++), byte);
  return alphabet;
}

export function pieces(decoder: Part | null): Pieces {
  if (decoder === null) throw bad("decoder", "is missing");
  const steps = parts(decoder, "decoder", "decoders");
  if (steps.some((step) => step.type === "ByteLevel")) {
    if (steps.some((step) => step.type !== "ByteLevel" && step.type !== "Fuse")) {
      throw bad("decoder", "ByteLevel together with other steps is not supported");
    }
    return { bytes: byteLevelBytes, added: (content) => utf8.encode(content), leadingSpaces: 0 };
  }

  const rewrites: ((token: string) => string)[] = [];
  let leadingSpaces = 0;
  let byteFallback = false;
  let fused = false;
  for (const step of steps) {
    switch (step.type) {
      case "Replace":
        if (fused) throw bad("decoder", "Replace after Fuse is not supported");
        rewrites.push(replace((step.pattern as { String?: unknown } | undefined)?.String, step.content));
        break;
      case "Metaspace": {
        rewrites.push(replace(step.replacement ?? "\u2581", " "));
        if (step.prepend_scheme !== "never") leadingSpaces = 1;
        break;
      }
      case "ByteFallback":
        byteFallback = true;
        break;
      case "Fuse":
        fused = true;
        break;
      case "Strip":
        if (!fused || step.content !== " " || step.stop !== 0 || typeof step.start !== "number") {
          throw bad("decoder", "Strip other than of spaces at the start of the whole text is not supported");
        }
        leadingSpaces = step.start;
        break;
      default:
        throw bad("decoder.type", `${JSON.stringify(step.type)} is not supported`);
    }
  }
  const bytes = (token: string): Uint8Array => {
    const byte = byteFallback ? /^<0x([0-9A-Fa-f]{2})>$/.exec(token) : null;
    if (byte) return Uint8Array.of(Number.parseInt(byte[1] as string, 16));
    return utf8.encode(rewrites.reduce((text, rewrite) => rewrite(text), token));
  };
  return { bytes, added: bytes, leadingSpaces };
}

function byteLevelBytes(token: string): Uint8Array {
  const bytes = new Uint8Array(token.length);
  for (let i = 0; i < token.length; i++) {
    const byte = BYTE_OF.get(token[i] as string);
    if (byte === undefined) return utf8.encode(token);
    bytes[i] = byte;
  }
  return bytes;
}

/** Replaces one text by another, both as they are written. */
function replace(what: unknown, content: unknown): (token: string) => string {
  if (typeof what !== "string" || what === "" || typeof content !== "string")
    throw bad("decoder", "Replace by a pattern is not supported");
  return (token) => {
    const parts = token.split(what);
    const growth = (parts.length - 1) * (content.length - what.length);
    if (token.length + growth > MAX_PIECE) throw grows("decoder");
    return parts.join(content);
  };
}
