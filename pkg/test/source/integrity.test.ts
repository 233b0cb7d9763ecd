/** With `integrity` nothing is handed out that differs from what was hashed, whatever a server sends the second time. */

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { type TestContext, test } from "node:test";
import { HttpSource } from "../../src/source/http.ts";
import { IntegrityChecks } from "../../src/source/integrity.ts";
import { type Hasher, Sha256 } from "../../src/source/sha256.ts";
import type { Source } from "../../src/source/source.ts";
import { type Random, randomOf } from "./support/faulty.ts";
import { serveFiles } from "./support/server.ts";

const RUNS = Number(process.env.INTEGRITY_RUNS ?? 40);
const KB = 1 << 10;
const SIZE = 1500 * KB + 77;
const bytes = Uint8Array.from({ length: SIZE }, (_, i) => (Math.imul(i, 2654435761) >>> 24) ^ (i >>> 16));
const expected = createHash("sha256").update(bytes).digest("hex");

/** Says which byte of an answer that sends `length` bytes from `offset` on is altered; null for none. */
type Liar = (offset: number, length: number) => number | null;

/** A server of ranges that alters bytes, and the wrapped source over it. */
async function lying(context: TestContext, alter: Liar, hasher?: () => Hasher): Promise<Source> {
  const { url } = await serveFiles(
    context,
    { file: bytes },
    {
      answer(request, response) {
        const [, from, to] = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? "") ?? [];
        const [start, end] = [Number(from), Math.min(Number(to) + 1, SIZE)];
        const body = bytes.slice(start, end);
        const at = alter(start, body.length);
        if (at !== null) body[at - start]! ^= 1;
        response.writeHead(206, {
          "content-range": `bytes ${start}-${end - 1}/${SIZE}`,
          "content-length": body.length,
        });
        response.end(body);
        return true;
      },
    },
  );
  const { source } = await HttpSource.open({ kind: "url", url: `${url}file`, headers: [] }, { backoff: 2 });
  return new IntegrityChecks(expected, hasher).wrap(source, "file");
}

/** Remembers what was read, to compare all of it with the file at the end. */
class Reader {
  readonly #source: Source;
  readonly #read: { offset: number; bytes: Uint8Array }[] = [];

  constructor(source: Source) {
    this.#source = source;
  }

  async read(offset: number, length: number): Promise<void> {
    this.#read.push({ offset, bytes: await this.#source.read(offset, length) });
  }

  /** Stops early where `most` is less than the length. */
  async stream(offset: number, length: number, most = length): Promise<void> {
    let at = offset;
    for await (const piece of this.#source.stream(offset, length)) {
      this.#read.push({ offset: at, bytes: piece.slice() });
      at += piece.length;
      if (at - offset >= most) return;
    }
    assert.equal(at - offset, length);
  }

  honest(): boolean {
    return this.#read.every((part) =>
      Buffer.from(part.bytes).equals(bytes.subarray(part.offset, part.offset + part.bytes.length)),
    );
  }
}

const refused = { name: "EngineError", code: "IntegrityMismatch", message: /is not the file that was asked for/ };

/** Alters one byte of the file whenever it is sent again. */
function secondTime(target: number): Liar {
  let sent = 0;
  return (offset, length) => (offset <= target && target < offset + length && sent++ > 0 ? target : null);
}

test("bytes that are others when they are read again end the load", async (context) => {
  // A header that is longer than the first request, of whose last block the weights are the rest.
  const behind = new Reader(await lying(context, secondTime(300 * KB)));
  await behind.read(0, 256 * KB);
  await behind.read(256 * KB, 256 * KB);
  await assert.rejects(behind.stream(290 * KB, SIZE - 290 * KB), refused);

  // Rows that are looked at before the file is read in order, from a server that is honest from then on.
  const target = 700 * KB;
  let first = true;
  const once: Liar = (offset, length) => {
    if (!first || offset > target || offset + length <= target) return null;
    first = false;
    return target;
  };
  const ahead = new Reader(await lying(context, once));
  await ahead.read(690 * KB, 20 * KB);
  assert.equal(ahead.honest(), false, "the attack is there");
  await assert.rejects(ahead.stream(0, SIZE), refused);

  // After the check has passed.
  const done = await lying(context, secondTime(1000 * KB));
  await new Reader(done).stream(0, SIZE);
  await done.check!();
  await assert.rejects(done.read(1000 * KB, 1), refused);
  assert.deepEqual(await done.read(5, 10), bytes.slice(5, 15), "what is as it was may be read again");
});

/** Reads in an order of chance, some at the same time, some cut off. */
async function anyOrder(reader: Reader, random: Random): Promise<void> {
  const some = () => {
    const offset = Math.floor(random() ** 2 * SIZE);
    const length = Math.min(SIZE - offset, 1 + Math.floor(random() ** 2 * 600 * KB));
    if (random() < 0.5) return reader.read(offset, length);
    return reader.stream(offset, length, random() < 0.3 ? Math.floor(random() * length) : length);
  };
  for (let step = 0; step < 4; step++) {
    const ends = await Promise.allSettled(Array.from({ length: 1 + Math.floor(random() * 3) }, some));
    for (const end of ends) if (end.status === "rejected") throw end.reason;
    if (random() < 0.3) await reader.stream(0, SIZE);
  }
}

test(`${RUNS} orders of reading, with one byte altered in any answer`, { timeout: 120_000 }, async (context) => {
  let [caught, passed] = [0, 0];
  for (let seed = 0; seed < RUNS; seed++) {
    const random = randomOf(seed);
    const last = Math.floor(random() * 12);
    let count = 0;
    let altered = false;
    const alter: Liar = (offset, length) => {
      if (count++ !== last) return null;
      altered = true;
      return offset + Math.floor(random() * length);
    };
    const hasher = seed % 3 === 0 ? () => new Sha256() : () => createHash("sha256");
    const source = await lying(context, alter, hasher);
    const reader = new Reader(source);
    try {
      await anyOrder(reader, random);
      await source.check!();
      assert.ok(reader.honest(), `seed ${seed}: altered bytes were handed out, and the check passed`);
      passed++;
    } catch (error) {
      if (error instanceof assert.AssertionError) throw error;
      assert.equal((error as { code?: string }).code, "IntegrityMismatch", `seed ${seed}: ${error}`);
      assert.ok(altered, `seed ${seed}: an honest server was refused`);
      caught++;
    }
    await source.close();
  }
  assert.ok(caught > RUNS / 4 && passed > RUNS / 10, `${caught} caught, ${passed} passed`);
});

test("a state of the hash can be copied at any place", () => {
  for (const at of [0, 1, 55, 56, 63, 64, 65, 1000, 256 * KB]) {
    const whole = new Sha256().update(bytes.subarray(0, at));
    const copy = whole.copy();
    copy.update(bytes.subarray(at));
    const hex = (hash: Hasher) => Buffer.from(hash.digest()).toString("hex");
    assert.equal(hex(whole), createHash("sha256").update(bytes.subarray(0, at)).digest("hex"));
    assert.equal(hex(copy), expected);
  }
});
