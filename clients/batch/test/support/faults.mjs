/** One run with faults: a job, workers that are started again when they end, and what a seed does to all of them. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { broker } from "./brokers.mjs";
import { fill, mountSmall } from "./disks.mjs";
import { expected } from "./lines.mjs";

const script = (name) => fileURLToPath(new URL(name, import.meta.url));
const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Seconds of a worker's lease. */
export const LEASE = 2;

/** Chunks of a job that are in its queue: fewer than it has, so that some are added while it runs. */
const WINDOW = 24;

/** Numbers from 0 to 1 that a seed repeats. */
export function random(seed) {
  let state = (seed * 2654435761) % 2 ** 32;
  const next = () => {
    state = (state * 1664525 + 1013904223) % 2 ** 32;
    return state / 2 ** 32;
  };
  // The first numbers of seeds that are near each other are near each other, too.
  for (let i = 0; i < 8; i++) next();
  return next;
}

/** A program that is started again whenever it ends, until it has done its work. */
class Kept {
  #args;
  #stopped = false;
  child = null;
  starts = 0;

  constructor(args) {
    this.#args = args;
    this.#start();
  }

  #start() {
    this.starts++;
    const err = process.env.BATCH_DEBUG ? "inherit" : "ignore";
    this.child = spawn(process.execPath, this.#args, { stdio: ["ignore", "ignore", err] });
    this.done = once(this.child, "exit").then(async ([code]) => {
      if (code === 0) return true;
      if (this.#stopped) return false;
      await wait(100);
      if (!this.#stopped) this.#start();
      return false;
    });
  }

  signal(name) {
    this.child.kill(name);
  }

  async stop() {
    this.#stopped = true;
    this.child.kill("SIGCONT");
    this.child.kill("SIGKILL");
    await this.done;
  }
}

/** A folder on a small disk of its own where this machine allows one. */
async function sharedFolder() {
  const folder = await mkdtemp(path.join(tmpdir(), "ternlight-shared-"));
  const unmount = mountSmall(folder, 8);
  return { folder, disk: unmount ? folder : null, end: () => unmount?.() };
}

/** What a fault does; false where this machine does not allow it. */
const faults = {
  /** A worker dies. */
  async kill({ worker }) {
    worker().signal("SIGKILL");
  },
  /** A worker stands still for longer than its lease, and wakes up to find its chunks with others. */
  async stop({ worker, next }) {
    const { child } = worker();
    child.kill("SIGSTOP");
    await wait(1000 * LEASE * (1.2 + next()));
    child.kill("SIGCONT");
  },
  /** The broker dies, and is there again. */
  async broker({ queue, next }) {
    await queue.kill();
    await wait(1000 * next());
    await queue.start();
  },
  /** The broker does not answer for a while. */
  async pause({ queue, next }) {
    queue.pause();
    await wait(500 + 2000 * next());
    queue.resume();
  },
  /** Who submits and collects dies. */
  async collector({ collector }) {
    collector.signal("SIGKILL");
  },
  /** Clocks jump by hours. */
  async clock({ worker }) {
    worker().signal("SIGUSR2");
  },
  /** The shared folder is full, or the broker's own disk, and has room again. */
  async disk({ queue, shared, next }) {
    const disks = [shared, queue.disk].filter((disk) => disk !== null);
    if (disks.length === 0) return false;
    const free = await fill(disks[Math.floor(next() * disks.length)]);
    await wait(300 + 1200 * next());
    await free();
    // A broker may end where it cannot write its log.
    if (!queue.lives()) await queue.start();
    return true;
  },
};
export const FAULTS = Object.keys(faults);

/** Faults in an order that a seed repeats, each as often as the others: what a run had no time for comes first in the next. */
export class Deck {
  #next;
  #left = [];

  constructor(seed) {
    this.#next = random(seed);
  }

  take() {
    if (this.#left.length === 0) {
      const all = [...FAULTS];
      while (all.length > 0) this.#left.push(...all.splice(Math.floor(this.#next() * all.length), 1));
    }
    return this.#left.shift();
  }

  putBack(name) {
    this.#left.unshift(name);
  }
}

/**
 * @param alone what one undisturbed process writes, with the `identity` of the demo model where that answers and no simulated engine
 * @returns what was done, and whether the results are the same
 */
export async function faultRun(
  seed,
  kind,
  { workers = 4, lines = 1000, chunk = 16, ms = 120, count = 4, deck = new Deck(seed), alone } = {},
) {
  const { identity: engine, ...whole } = alone ?? expected(lines);
  const next = random(seed);
  const pick = (list) => list[Math.floor(next() * list.length)];
  const { folder, disk, end } = await sharedFolder();
  const results = await mkdtemp(path.join(tmpdir(), "ternlight-results-"));
  const queue = await broker(kind, null, true);
  const out = path.join(results, "out.jsonl");
  const shared = path.join(folder, "jobs");
  await mkdir(shared);
  const place = { queue: queue.url, ...(kind === "database" ? {} : { folder: shared }) };
  const options = (more) => JSON.stringify({ ...place, ...more });
  const all = Array.from(
    { length: workers },
    () => new Kept([script("worker.mjs"), options({ ms, lease: LEASE, engine: engine !== undefined })]),
  );
  const collector = new Kept([script("collect.mjs"), options({ out, lines, chunk, window: WINDOW, engine })]);
  const begun = performance.now();
  const done = [];
  // What would wait for ever ends here.
  const late = () => performance.now() - begun > 90_000;
  try {
    // Without a folder the database alone has the answers.
    const shared = kind === "database" ? null : disk;
    const context = { queue, collector, shared, next, worker: () => pick(all) };
    for (let i = 0; i < count; i++) {
      const name = deck.take();
      await wait(300 + 700 * next());
      if (existsSync(out)) {
        deck.putBack(name);
        break;
      }
      if ((await faults[name](context)) !== false) done.push(name);
    }
    while (!existsSync(out) && !late()) await wait(50);
    await Promise.race([collector.done, wait(5000)]);
    const read = (file) => (existsSync(file) ? readFileSync(file, "utf8") : "");
    const same = read(out) === whole.out && read(out.replace(".jsonl", ".errors.jsonl")) === whole.errors;
    const starts = all.reduce((sum, one) => sum + one.starts, 0);
    const small = disk !== null;
    return { seed, kind, faults: done, small, same, starts, seconds: (performance.now() - begun) / 1000 };
  } finally {
    await Promise.all([collector, ...all].map((one) => one.stop()));
    await queue.end();
    end();
    for (const path of [folder, results]) await rm(path, { recursive: true, force: true });
  }
}
