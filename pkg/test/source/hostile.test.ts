/**
 * Files of a cache and answers of servers that a seed has made up: every case ends soon, in the right bytes or in an error of ours, and
 * takes no memory that the bytes do not account for. `HOSTILE_CASES=50000` is what `make soak` does.
 */

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readdir, readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { test } from "node:test";
import { manage } from "../../src/api/cache.ts";
import { openDirectory } from "../../src/cache/disk.ts";
import { openCached, type Trust } from "../../src/cache/open.ts";
import { retryFresh } from "../../src/host/opening.ts";
import { surviveLostConnections } from "../../src/platform/node.ts";
import { HttpSource } from "../../src/source/http.ts";
import { IntegrityChecks } from "../../src/source/integrity.ts";
import { EngineError } from "../../src/types/errors.ts";
import { type Random, randomOf } from "./support/faulty.ts";
import { HostileServer, spoiled } from "./support/hostile.ts";
import { folderOf } from "./support/models.ts";

const CASES = Number(process.env.HOSTILE_CASES ?? 300);
/** The first seed: another one goes on where an earlier run ended. */
const FIRST = Number(process.env.HOSTILE_SEED ?? 0);
/** Milliseconds that one case may take. */
const SOON = 2000;
/** Bytes that all cases together may take: some five hundred times the file, which the runtime collects in its own time. */
const MEMORY = 384 * 2 ** 20;

const SIZE = 700_000;
const file = Uint8Array.from({ length: SIZE }, (_, i) => (Math.imul(i, 2654435761) >>> 24) ^ (i >>> 12));
const sha256 = createHash("sha256").update(file).digest("hex");
const http = { patience: 60, backoff: 1 };

/** Runs one case, and once more where it took long: other work on the machine may have been the reason. What it ended in. */
async function once(seed: number, work: () => Promise<void>, again = true): Promise<string> {
  const begun = performance.now();
  let end = "right";
  try {
    await work();
  } catch (error) {
    if (!(error instanceof EngineError)) throw new Error(`seed ${seed}: ${error}`, { cause: error });
    assert.ok(error.message.length < 6000, `seed ${seed}: a message of ${error.message.length} characters`);
    end = error.code;
  }
  const took = performance.now() - begun;
  if (took >= SOON && again) return once(seed, work, false);
  assert.ok(took < SOON, `seed ${seed}: ${took.toFixed(0)} ms`);
  return end;
}

interface Tally {
  ends: Map<string, number>;
  memory: number;
}

/** As in the package's own threads. The runner would take for a failure what they survive. */
function survive(): void {
  process.removeAllListeners("uncaughtException");
  surviveLostConnections();
}

async function all(cases: number, one: (seed: number) => Promise<string>): Promise<Tally> {
  const ends = new Map<string, number>();
  const before = process.memoryUsage.rss();
  let most = before;
  for (let seed = FIRST; seed < FIRST + cases; seed++) {
    const end = await one(seed);
    ends.set(end, (ends.get(end) ?? 0) + 1);
    most = Math.max(most, process.memoryUsage.rss());
  }
  return { ends, memory: most - before };
}

const same = (bytes: Uint8Array, offset: number) =>
  Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).equals(file.subarray(offset, offset + bytes.length));

test(`${CASES} answers of servers`, { timeout: 30 * 60_000 }, async (context) => {
  survive();
  const server = await new HostileServer(file).listen();
  context.after(() => server.close());
  const directory = await folderOf(context, {});
  const store = await openDirectory(directory);
  const spec = { kind: "url" as const, url: server.url, headers: [] as [string, string][] };
  const { ends, memory } = await all(CASES, (seed) =>
    once(seed, async () => {
      const random = randomOf(seed);
      server.random = random;
      spec.headers = random() < 0.3 ? [["authorization", "Bearer x"]] : [];
      const direct = random() < 0.5;
      const opened = direct
        ? (await HttpSource.open(spec, http)).source
        : await openCached(spec, { store, verify: random() < 0.5, http, trust: "announced", warn() {} });
      const checked = random() < 0.7;
      const source = checked ? new IntegrityChecks(sha256, () => createHash("sha256")).wrap(opened, "model") : opened;
      try {
        const at = Math.floor(random() * Math.max(0, source.size - 5000));
        await source.read(at, Math.min(5000, source.size));
        // No more than it can have: a size that is a lie has no end.
        const length = Math.min(source.size, 2 * SIZE);
        const pieces: Uint8Array[] = [];
        for await (const piece of source.stream(0, length)) pieces.push(piece.slice());
        await source.check?.();
        assert.ok(!checked || same(Buffer.concat(pieces), 0), `seed ${seed}: wrong bytes passed the check`);
      } finally {
        await source.close();
      }
    }),
  );
  context.diagnostic(`${JSON.stringify(Object.fromEntries(ends))}, ${(memory / 1e6).toFixed(0)} MB`);
  assert.ok(memory < MEMORY, `${memory} bytes`);
  for (const end of ["right", "Network", "NotFound", "TooLarge", "IntegrityMismatch"])
    assert.ok(ends.get(end), `none ended in ${end}`);
});

test(`${CASES} files of a cache`, { timeout: 30 * 60_000 }, async (context) => {
  survive();
  const server = await new HostileServer(file).listen();
  context.after(() => server.close());
  const directory = await folderOf(context, {});
  const store = await openDirectory(directory);
  const list = manage(openDirectory, null);
  const spec = { kind: "url" as const, url: server.url, headers: [] };
  const open = async (verify: boolean, trust: Trust) => {
    const source = await openCached(spec, { store, verify, http: { backoff: 1 }, trust, warn() {} });
    return { source, confirm: async () => source.confirm?.() };
  };
  const read = (verify: boolean) =>
    retryFresh(
      (trust) => open(verify, trust),
      async (opening) => {
        const { source } = opening as Awaited<ReturnType<typeof open>>;
        try {
          const pieces: Uint8Array[] = [];
          // No more than it can have: the size in a head that is damaged has no end.
          for await (const piece of source.stream(0, Math.min(source.size, 2 * SIZE))) pieces.push(piece.slice());
          await opening.confirm?.();
          assert.equal(source.size, SIZE);
          await source.dropEarlier?.();
          return Buffer.concat(pieces);
        } finally {
          await source.close();
        }
      },
    );
  await read(true);
  const [name] = await readdir(directory);
  const good = await readFile(path.join(directory, name!));
  const spoil = (random: Random) => writeFile(path.join(directory, name!), spoiled(random, good));
  const { memory } = await all(CASES, (seed) =>
    once(seed, async () => {
      await spoil(randomOf(seed));
      for (const { size, kept } of await list.list({ directory })) assert.ok(size >= kept && kept >= 0, `seed ${seed}`);
      assert.ok(same(await read(true), 0), `seed ${seed}: wrong bytes`);
      // What is there now is right.
      assert.ok(same(await read(false), 0), `seed ${seed}: wrong bytes were kept`);
    }),
  );
  context.diagnostic(`${(memory / 1e6).toFixed(0)} MB`);
  assert.ok(memory < MEMORY, `${memory} bytes`);
});
