/**
 * Seven workers with the demo model: two are killed, one stands still beyond its lease and wakes up late, the broker is killed. Lines are
 * sampled, and chunks take longer than their lease. And what else the campaign of faults.test.mjs does to a simulated engine: a disk that is
 * full and has room again, clocks that jump, one who collects that dies. `make soak` does it on all queues (BATCH_ENGINE_BROKERS), with more
 * seeds (BATCH_ENGINE_SEEDS).
 */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { status } from "@ternlight/batch";
import { broker, missing } from "./support/brokers.mjs";
import { engineAlone } from "./support/engine.mjs";
import { FAULTS, faultRun } from "./support/faults.mjs";

const cli = fileURLToPath(new URL("../../../pkg/dist/cli.js", import.meta.url));
const MODEL = ["--model", "ternlight-demo", "--threads", "1"];
const KINDS = (process.env.BATCH_ENGINE_BROKERS ?? "redis").split(",");
const [LINES, TOKENS, WORKERS, LEASE] = [112, 32, 7, 1];
const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Sampled with a seed of its own, or with the number of the line; some ask for two answers, and some cannot be answered. */
function line(i) {
  if (i % 50 === 49) return "{broken";
  const [prompt, more] = [`The ${["king", "fox", "well", "bread"][i % 4]} of ${i}`, i % 3 === 0 ? { seed: 7 * i } : {}];
  return JSON.stringify({
    prompt,
    max_tokens: TOKENS,
    temperature: 1,
    n: i % 20 === 9 ? 2 : 1,
    ignore_eos: true,
    ...more,
  });
}

function start(...args) {
  const child = spawn(process.execPath, [cli, "batch", ...args], { stdio: ["ignore", "pipe", "pipe"] });
  const made = { child, err: "", ended: once(child, "close") };
  child.stderr.on("data", (text) => (made.err += text));
  return made;
}

async function done(...args) {
  const made = start(...args);
  made.child.stdout.resume();
  assert.deepEqual(await made.ended, [0, null], made.err);
}

const events = ({ err }) =>
  err
    .split("\n")
    .filter((text) => text.startsWith("{"))
    .map((text) => JSON.parse(text));

for (const kind of KINDS) {
  const why = missing(kind);
  const name = `seven workers of whom two die write what one process writes (${kind})`;
  test(name, why ? { skip: `${why} is not installed` } : {}, async (context) => {
    const folder = await mkdtemp(path.join(tmpdir(), "ternlight-engine-"));
    const at = (name) => path.join(folder, name);
    const queue = await broker(kind);
    const children = [];
    context.after(async () => {
      for (const { child } of children) child.kill("SIGKILL");
      await queue.end();
      await rm(folder, { recursive: true, force: true });
    });
    await writeFile(at("in.jsonl"), Array.from({ length: LINES }, (_, i) => `${line(i)}\n`).join(""));
    await done(at("in.jsonl"), ...MODEL, "--out", at("alone.jsonl"));

    const place = kind === "database" ? { queue: queue.url } : { queue: queue.url, folder: at("jobs") };
    const flags = Object.entries(place).flatMap(([name, value]) => [`--${name}`, value]);
    for (let i = 0; i < WORKERS; i++) {
      children.push(start("worker", ...flags, ...MODEL, "--lease", String(LEASE), "--json"));
    }
    await Promise.all(children.map(({ child }) => once(child.stdout, "data")));
    const collecting = start(at("in.jsonl"), ...MODEL, ...flags, "--chunk", "8", "--out", at("out.jsonl"));
    children.push(collecting);
    collecting.child.stdout.resume();

    const looked = async () => (await status(place))[0];
    const until = async (holds) => {
      for (;;) {
        const found = await looked().catch(() => null);
        if (found && holds(found)) return found;
        await wait(20);
      }
    };
    const [killed, late, stopped] = children;
    await until(({ queue }) => queue.active >= WORKERS);
    killed.child.kill("SIGKILL");
    stopped.child.kill("SIGSTOP");
    await until(({ done }) => done > 0);
    await queue.kill();
    late.child.kill("SIGKILL");
    await wait(300);
    await queue.start();
    assert.deepEqual(await collecting.ended, [0, null], collecting.err);
    const same = (name) => {
      for (const end of [".jsonl", ".errors.jsonl"]) {
        assert.ok(readFileSync(at(`${name}${end}`)).equals(readFileSync(at(`alone${end}`))), `${name}${end}`);
      }
    };
    same("out");

    // Who has slept finishes chunks that others have done.
    const before = events(stopped).length;
    stopped.child.kill("SIGCONT");
    for (let tries = 0; events(stopped).length === before && tries < 500; tries++) await wait(20);
    assert.ok(events(stopped).length > before, stopped.err);
    await done(at("in.jsonl"), ...MODEL, ...flags, "--chunk", "8", "--out", at("again.jsonl"));
    same("again");

    const all = children.slice(0, WORKERS).flatMap(events);
    const long = all.filter(({ what, retries, ms }) => what === "answered" && retries === 0 && ms > 1000 * LEASE);
    assert.ok(long.length > 0, "a chunk takes longer than its lease, and stays with its worker");
    assert.ok(
      all.some(({ retries }) => retries > 0),
      "chunks of those who died are begun again",
    );
  });
}

/** Faults in an order that begins with those that a simulated engine alone would have met. */
class Turn {
  #left;

  constructor(seed) {
    const all = [
      "disk",
      "clock",
      "collector",
      ...FAULTS.filter((name) => !["disk", "clock", "collector"].includes(name)),
    ];
    this.#left = all.map((_, i) => all[(i + 3 * seed) % all.length]);
  }

  take() {
    return this.#left.shift();
  }

  putBack(name) {
    this.#left.unshift(name);
  }
}

const SEEDS = Number(process.env.BATCH_ENGINE_SEEDS ?? 1);
const COUNT = 250;
let alone = null;

for (const [at, kind] of KINDS.entries()) {
  const why = missing(kind);
  const name = `faults change no byte of what the demo model answers (${kind})`;
  test(name, why ? { skip: `${why} is not installed` } : {}, async (context) => {
    alone ??= await engineAlone(COUNT);
    for (let seed = 0; seed < SEEDS; seed++) {
      const deck = new Turn(seed);
      const found = await faultRun(SEEDS * at + seed, kind, { deck, lines: COUNT, chunk: 8, count: 3, alone });
      context.diagnostic(JSON.stringify(found));
      assert.ok(found.same, JSON.stringify(found));
      assert.ok(found.faults.length >= (found.small ? 2 : 1), "the run was over before its faults");
    }
  });
}
