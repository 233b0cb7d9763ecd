/**
 * Loads through a cache from a server that fails in every way known, by seed: each ends in the right bytes or in an error of ours, and
 * whatever has happened, the next one from a server that works ends in the right bytes. `FAULT_RUNS=200` does more of them.
 */

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { openDirectory } from "../../src/cache/disk.ts";
import { openCached, type Trust } from "../../src/cache/open.ts";
import { IntegrityChecks } from "../../src/source/integrity.ts";
import type { HttpOptions } from "../../src/source/request.ts";
import type { Source } from "../../src/source/source.ts";
import { EngineError } from "../../src/types/errors.ts";
import { type Fault, FaultyServer, faults, type Random, randomOf } from "./support/faulty.ts";

const RUNS = Number(process.env.FAULT_RUNS ?? 48);
const AT_ONCE = 8;
const MIB = 1 << 20;

/** Long enough for parts at once in one run of sixteen. */
const sizeOf = (seed: number) => (seed % 16 === 0 ? 13 * MIB : 2 * MIB) + ((seed * 7919) % MIB);

/** Each version's bytes differ everywhere. */
function content(size: number, seed: number, version: number): Uint8Array {
  const words = new Uint32Array(Math.ceil(size / 4));
  let state = (seed * 31 + version + 1) | 0;
  for (let i = 0; i < words.length; i++) words[i] = state = (Math.imul(state, 1664525) + 1013904223) | 0;
  return new Uint8Array(words.buffer, 0, size);
}

const sha256 = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex");

interface Load {
  directory: string;
  http: HttpOptions;
  verify: boolean;
  /** Reads a copy while the server is asked whether it is still its file. */
  guesses: boolean;
  integrity?: string;
  signal?: AbortSignal;
  /** Leaves the cache as a process that is killed does. */
  killed?: boolean;
}

/** What a load reads: a header, something in the middle, then all. A copy that the server does not confirm is not what it reads. */
async function load(server: FaultyServer, options: Load): Promise<Buffer> {
  if (!options.guesses) return read(server, options, "announced");
  let confirmed: Promise<void> | undefined;
  try {
    const bytes = await read(server, options, "kept", (cached) => (confirmed = cached.confirm?.()));
    await confirmed;
    return bytes;
  } catch (error) {
    const current = await Promise.resolve(confirmed).then(
      () => true,
      () => false,
    );
    if (current || options.signal?.aborted) throw error;
    return read(server, options, "announced");
  }
}

async function read(
  server: FaultyServer,
  { directory, http, verify, integrity, signal, killed }: Load,
  trust: Trust,
  opened: (source: Source) => void = () => {},
): Promise<Buffer> {
  const store = await openDirectory(directory);
  const spec = { kind: "url" as const, url: server.url, headers: [] };
  const cached = await openCached(spec, { store, verify, http, trust, signal, warn() {} });
  opened(cached);
  const source = integrity
    ? new IntegrityChecks(integrity, () => createHash("sha256")).wrap(cached, "model.gguf")
    : cached;
  const options = signal ? { signal } : {};
  try {
    const middle = Math.floor(source.size / 2);
    await Promise.all([source.read(0, Math.min(1000, source.size), options), source.read(middle, 10, options)]);
    const pieces: Buffer[] = [];
    for await (const piece of source.stream(0, source.size, options)) pieces.push(Buffer.from(piece));
    await source.check?.(options);
    return Buffer.concat(pieces);
  } finally {
    if (!killed) await source.close();
  }
}

/** What may happen to the cache's file between two loads. */
async function damage(directory: string, random: Random): Promise<void> {
  for (const name of await readdir(directory)) {
    const file = path.join(directory, name);
    const bytes = await readFile(file);
    if (random() < 0.5) bytes[4096 + Math.floor(random() * (bytes.length - 4096))]! ^= 0x55;
    else if (random() < 0.3) bytes[Math.floor(random() * 4096)]! ^= 0x55;
    await writeFile(file, random() < 0.2 ? bytes.subarray(0, Math.floor(random() * bytes.length)) : bytes);
  }
}

async function run(seed: number, happened: Map<Fault, number>, ends: Map<string, number>): Promise<void> {
  const random = randomOf(seed);
  const directory = await mkdtemp(path.join(tmpdir(), "ternlight-"));
  const size = sizeOf(seed);
  const server = await new FaultyServer(random, (version) => content(size, seed, version)).listen();
  server.ranges = random() < 0.95;
  const flips = seed % 4 === 0;
  // Without a hash nobody can know of a byte that was flipped on its way.
  const kinds = faults.filter((fault) => fault !== "flip" || flips);
  // Two kinds at a time, so that each is seen alone and beside others.
  const first = seed % 8 === 0 ? "flip" : kinds[seed % kinds.length]!;
  server.faults = [first, kinds[Math.floor(random() * kinds.length)]!];
  // Nor that a server has changed a file while it gave it no name.
  if (server.faults.includes("changed")) server.faults = server.faults.filter((fault) => fault !== "unnamed");
  // Nor that it says of a whole file that it is as long as what it sends.
  const lies = (fault: Fault) => fault === "short" || fault === "long";
  if (!server.ranges && !flips) server.faults = server.faults.filter((fault) => !lies(fault));
  let damaged = false;
  const note = (end: string) => ends.set(end, (ends.get(end) ?? 0) + 1);
  try {
    for (let round = 0; round < 2; round++) {
      server.rate = 0.2 + 0.4 * random();
      const stop = random() < 0.2 ? AbortSignal.timeout(Math.floor(random() * 50)) : undefined;
      const integrity = flips ? sha256(server.body) : undefined;
      const http = { patience: 250, backoff: 2, connections: 1 + Math.floor(random() * 4), enough: Infinity };
      const options = {
        directory,
        http,
        verify: damaged || random() < 0.5,
        guesses: random() < 0.5,
        integrity,
        signal: stop,
        killed: random() < 0.3,
      };
      try {
        const version = server.version;
        const bytes = await load(server, options);
        // The file may have changed while it was read, but what came is one version of it.
        const versions = Array.from({ length: server.version - version + 1 }, (_, i) => version + i);
        assert.ok(
          versions.some((each) => bytes.equals(content(size, seed, each))),
          "wrong bytes",
        );
        note("right");
      } catch (error) {
        if (stop?.aborted && error === stop.reason) note("aborted");
        else if (error instanceof EngineError) note(error.code);
        else throw error;
      }
      if (random() < 0.3) {
        damaged = true;
        await damage(directory, random);
      }
    }
    server.rate = 0;
    const healthy = { directory, http: { backoff: 2 }, verify: true, guesses: true };
    // A byte flipped in a load that never came to its end is found by the next one that is given a hash.
    const last = await load(server, { ...healthy, integrity: flips ? sha256(server.body) : undefined }).catch(
      (error) => {
        assert.equal(error.code, "IntegrityMismatch", error);
        assert.equal(error.detail.kept, true);
        return load(server, healthy);
      },
    );
    assert.ok(last.equals(server.body), "wrong bytes after the faults were over");
    if (server.ranges) {
      // And nothing more than a question is asked the next time.
      server.requests = [];
      const kept = { directory, http: {}, verify: false, guesses: true };
      const again = await load(server, { ...kept, integrity: sha256(server.body) });
      assert.ok(again.equals(server.body), "wrong bytes from the cache");
      assert.deepEqual(
        server.requests.map(({ method }) => method),
        ["HEAD"],
      );
    }
    for (const [fault, count] of server.happened) happened.set(fault, (happened.get(fault) ?? 0) + count);
  } catch (cause) {
    throw new Error(`seed ${seed}: ${(cause as Error).message}`, { cause });
  } finally {
    server.close();
    await rm(directory, { recursive: true, force: true });
  }
}

test(`${RUNS} loads from servers that fail`, { timeout: 300_000 }, async () => {
  const happened = new Map<Fault, number>();
  const ends = new Map<string, number>();
  let next = 0;
  const failures: unknown[] = [];
  const worker = async () => {
    while (next < RUNS && failures.length === 0) {
      await run(next++, happened, ends).catch((error) => failures.push(error));
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  if (failures.length > 0) throw failures[0];
  for (const fault of faults) assert.ok(happened.get(fault), `${fault} has never happened`);
  for (const end of ["right", "aborted", "Network", "IntegrityMismatch", "SourceChanged"]) {
    assert.ok(ends.get(end), `no load ended in ${end}`);
  }
});
