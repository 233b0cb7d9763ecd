/** The bytes of a batch's input: a file or standard input, as it is, in gzip or in Zstandard. */

import { createReadStream } from "node:fs";
import { stat } from "node:fs/promises";
import { pipeline } from "node:stream";
import zlib from "node:zlib";
import { Decompress } from "fzstd";
import { EngineError } from "../types/errors.ts";

/** What stands for standard input. */
const STANDARD = "-";
const GZIP = [0x1f, 0x8b];
const ZSTD = [0x28, 0xb5, 0x2f, 0xfd];
/** Bytes that are read from a file at once, and that go on at once: as read count those that somebody has asked for. */
const [READ, PIECE] = [2 ** 18, 2 ** 14];

export interface Input {
  /** For messages. */
  name: string;
  bytes: AsyncIterable<Uint8Array>;
  /** Bytes as they are stored; null where nobody knows. */
  size: number | null;
  /** How many of them were read. */
  readonly read: number;
}

export async function openInput(file: string, signal?: AbortSignal): Promise<Input> {
  const standard = file === STANDARD;
  const name = standard ? "standard input" : file;
  const found = standard ? null : await statOf(file);
  const stream = standard ? process.stdin : createReadStream(file, { highWaterMark: READ });
  const end = () => stream.destroy(signal!.reason);
  signal?.addEventListener("abort", end, { once: true });
  let read = 0;
  async function* counted(): AsyncGenerator<Uint8Array, undefined> {
    try {
      for await (const bytes of stream) {
        for (let at = 0; at < bytes.length; at += PIECE) {
          const piece = bytes.subarray(at, at + PIECE);
          read += piece.length;
          yield piece;
        }
      }
    } catch (cause) {
      signal?.throwIfAborted();
      throw new EngineError("Unreadable", `${name}: ${(cause as Error).message}`, { file: name }, { cause });
    } finally {
      signal?.removeEventListener("abort", end);
    }
  }
  return {
    name,
    bytes: unpacked(counted(), name),
    size: found?.isFile() ? found.size : null,
    get read() {
      return read;
    },
  };
}

async function statOf(file: string) {
  try {
    const found = await stat(file);
    if (!found.isDirectory()) return found;
  } catch (cause) {
    throw new EngineError("NotFound", `${file}: ${(cause as Error).message}`, { file }, { cause });
  }
  throw new EngineError("Unreadable", `${file} is a folder`, { file });
}

/** Unpacks what begins as packed bytes do, whatever its name. */
async function* unpacked(bytes: AsyncGenerator<Uint8Array>, name: string): AsyncGenerator<Uint8Array, undefined> {
  let head = Buffer.alloc(0);
  while (head.length < ZSTD.length) {
    const next = await bytes.next();
    if (next.done) break;
    head = Buffer.concat([head, next.value]);
  }
  const begins = (magic: readonly number[]) => magic.every((byte, i) => head[i] === byte);
  const all = joined(head, bytes);
  const kind = begins(GZIP) ? "gzip" : begins(ZSTD) ? "Zstandard" : null;
  if (kind === null) return yield* all;
  try {
    yield* kind === "gzip" ? through(all, zlib.createGunzip()) : unzstd(all);
  } catch (cause) {
    if (cause instanceof EngineError) throw cause;
    throw new EngineError(
      "Damaged",
      `${name} is no whole ${kind}: ${(cause as Error).message}`,
      { file: name },
      { cause },
    );
  }
}

async function* joined(head: Uint8Array, rest: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array, undefined> {
  if (head.length > 0) yield head;
  yield* rest;
}

async function* through(
  bytes: AsyncIterable<Uint8Array>,
  unpack: NodeJS.ReadWriteStream & AsyncIterable<Uint8Array>,
): AsyncGenerator<Uint8Array, undefined> {
  // Its errors end the stream that is read, too.
  pipeline(bytes, unpack, () => {});
  yield* unpack;
}

/** Four bytes may stand for a block of 128 KiB, so that this many become 32 MiB at most. */
const ZSTD_PIECE = 1024;

/** By a library: not every Node knows Zstandard, and those that do stop behind the first frame. */
async function* unzstd(bytes: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array, undefined> {
  const ready: Uint8Array[] = [];
  const stream = new Decompress((chunk) => ready.push(chunk.slice()));
  for await (const some of bytes) {
    for (let at = 0; at < some.length; at += ZSTD_PIECE) {
      stream.push(some.subarray(at, at + ZSTD_PIECE));
      yield* ready.splice(0);
    }
  }
  stream.push(new Uint8Array(), true);
  yield* ready.splice(0);
}
