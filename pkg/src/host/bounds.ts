/** Looks at what callers hand over before it is copied into the engine's memory, which never shrinks. */

import { EngineError, type ErrorCode } from "../types/errors.ts";
import type { ModelInfo } from "../types/index.ts";

/** What a saved session begins with, and where it has the number of its tokens. */
const MAGIC = "TLSESSN\n";
const COUNT = 12;
/** Bytes before its ids, and with the checksum behind its content. */
const HEAD = 32;
const FRAME = 40;
/** What a hybrid's session has before its state. */
const COMPUTED = 4;

/** Refuses what cannot be a session of this model: it holds at most the keys and values of the cache, states, and an id for each position. */
export function checkSaved(bytes: Uint8Array, { memory, contextLength }: ModelInfo): void {
  const option = "restore";
  checkMagic(bytes, option);
  const limit = memory.kv + memory.states + 4 * contextLength + FRAME + COMPUTED;
  if (bytes.length <= limit) return;
  const count = new DataView(bytes.buffer, bytes.byteOffset).getUint32(COUNT, true);
  if (count > contextLength) throw tooLong("the session is longer than the context", count, contextLength);
  const message = "the session is larger than any of this model: it was saved by another one, or is damaged";
  const expected = `at most ${limit} bytes`;
  throw new EngineError("WrongModel", message, { option, expected, found: String(bytes.length) });
}

/** The ids that a saved session holds. */
export function savedIds(bytes: Uint8Array): number[] {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  checkMagic(bytes, "prefill");
  const count = view.getUint32(COUNT, true);
  checkLength(bytes, 4 * count + FRAME, "prefill");
  return Array.from({ length: count }, (_, i) => view.getUint32(HEAD + 4 * i, true));
}

function checkMagic(bytes: Uint8Array, option: string): void {
  if (new TextDecoder("latin1").decode(bytes.subarray(0, MAGIC.length)) !== MAGIC) {
    throw new EngineError("BadMagic", "not a saved session", { option });
  }
  checkLength(bytes, FRAME, option);
}

function checkLength({ length }: Uint8Array, least: number, option: string): void {
  if (length >= least) return;
  const detail = { option, expected: `at least ${least} bytes`, found: String(length) };
  throw new EngineError("Damaged", "the saved session is cut short", detail);
}

/** Refuses more ids than the context has positions. */
export function checkIds(ids: readonly number[], { contextLength }: ModelInfo): void {
  if (ids.length > contextLength) throw tooLong("the prompt is longer than the context", ids.length, contextLength);
}

/** Refuses ids that begin nothing or are none of the vocabulary, by the name that they have for their caller: the engine has one alone. */
export function checkTokens(ids: readonly number[], { vocab }: ModelInfo, option: string): void {
  if (ids.length === 0) throw refused("InvalidArgument", option, option, "a token at least", "none");
  const id = ids.find((id) => id >= vocab);
  if (id !== undefined) throw refused("InvalidArgument", option, option, `ids below ${vocab}`, id);
}

const tooLong = (message: string, found: number, most: number): EngineError =>
  refused("ContextFull", message, "contextLength", `at most ${most} tokens`, found);

function refused(code: ErrorCode, message: string, option: string, expected: string, found: unknown): EngineError {
  return new EngineError(code, `${message}: expected ${expected}, found ${found}`, {
    option,
    expected,
    found: `${found}`,
  });
}
