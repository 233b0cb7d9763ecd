/** What a run keeps: the journal, the order of the answers, and what a crash costs. The engine is simulated. */

import assert from "node:assert/strict";
import { execFile, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { appendFile, mkdir, mkdtemp, readFile, rm, stat, truncate, writeFile } from "node:fs/promises";
import { devNull, tmpdir } from "node:os";
import path from "node:path";
import { PassThrough } from "node:stream";
import { pipeline } from "node:stream/promises";
import { type TestContext, test } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import zlib from "node:zlib";
import { lockAll } from "../../src/batch/disk.ts";
import { filesOf, journalOf, leftBy, Output } from "../../src/batch/output.ts";
import { runBatch } from "../../src/batch/run.ts";
import type { Line } from "../../src/server/serving.ts";
import { EngineError } from "../../src/types/errors.ts";

const script = fileURLToPath(new URL("support/simulate.mjs", import.meta.url));

async function folder(context: TestContext): Promise<string> {
  const made = await mkdtemp(path.join(tmpdir(), "ternlight-batch-"));
  context.after(() => rm(made, { recursive: true, force: true }));
  return made;
}

const simulated = async (options: object) =>
  JSON.parse((await promisify(execFile)(process.execPath, [script, JSON.stringify(options)])).stdout);

const errorsOf = (out: string) => `${out}.errors`;
const both = async (out: string) => Promise.all([readFile(out, "utf8"), readFile(errorsOf(out), "utf8")]);

const linesOf = (file: string) => (existsSync(file) ? readFileSync(file, "utf8").split("\n").length - 1 : 0);

/** Numbers from 0 to 1 that a seed repeats. */
function random(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state * 1664525 + 1013904223) % 2 ** 32;
    return state / 2 ** 32;
  };
}

test("kill -9 at any moment costs a chunk at most, and changes no byte", async (context) => {
  const dir = await folder(context);
  const whole = path.join(dir, "whole.jsonl");
  const settings = { lines: 700, chunk: 8, workers: 2, delay: 2 };
  await simulated({ ...settings, out: whole });
  const next = random(Number(process.env.BATCH_SEED ?? 1));
  const out = path.join(dir, "killed.jsonl");
  const begun = path.join(dir, "begun");
  let kills = 0;
  for (;;) {
    const child = spawn(process.execPath, [script, JSON.stringify({ ...settings, out, begun })], { stdio: "ignore" });
    const ended = once(child, "exit");
    // By lines and not by time: a fast machine would be done before it is killed.
    const enough = linesOf(begun) + 30 + 120 * next();
    const timer = setInterval(() => linesOf(begun) >= enough && child.kill("SIGKILL"), 2);
    const [code] = await ended;
    clearInterval(timer);
    // Killed behind its last step, it has done all the same.
    if (code === 0 || existsSync(out)) break;
    assert.equal(code, null);
    kills++;
    // Some crashes cut off the last record, too.
    const journal = `${out}.journal`;
    if (existsSync(journal) && next() < 0.5) await truncate(journal, Math.max(0, (await stat(journal)).size - 5));
    assert.ok(kills < 200, "it goes forward");
  }
  assert.ok(kills >= 3, `${kills} kills`);
  assert.deepEqual(await both(out), await both(whole));
  assert.ok(!existsSync(`${out}.journal`) && !existsSync(`${out}.part`), "nothing is left behind");
  const lines = (await readFile(begun, "utf8")).trimEnd().split("\n");
  // What a cut record held is computed again, one line each time.
  const again = lines.length - settings.lines;
  assert.ok(again <= kills * (settings.chunk * settings.workers + 8), `${again} lines again after ${kills} kills`);
});

test("a journal with anything behind its last whole record goes on from that", async (context) => {
  const dir = await folder(context);
  const places = { out: path.join(dir, "a.jsonl"), errors: path.join(dir, "b.jsonl"), always: false };
  const rows = (lines: Line[]) =>
    (async function* () {
      yield lines;
    })();
  const lines = Array.from({ length: 20 }, (_, index) => ({ index, text: `${index}` }));
  const stop = new AbortController();
  const asked: number[] = [];
  const worker = {
    async answer({ index }: Line) {
      asked.push(index);
      // Out of order, and the eleventh is never answered.
      await new Promise((resolve) => setTimeout(resolve, index % 2 === 0 ? 20 : 1));
      if (index === 10) stop.abort(new Error("stopped"));
      stop.signal.throwIfAborted();
      return { text: `answer ${index}`, failed: false };
    },
  };
  const first = await Output.open(places, "m", null);
  const run = runBatch({ rows: rows(lines), workers: [worker], chunk: 4, output: first, signal: stop.signal });
  await assert.rejects(run, /stopped/);
  await first.stop();
  await appendFile(journalOf(places), '00000000 {"i": 19, "failed": false, "text": "forged"}\n{"mark"');
  const kept = (await leftBy(places))!;
  assert.ok(kept.answers.size + kept.mark.next >= 8, "answers out of order are kept");
  assert.ok(!kept.answers.has(19));

  const other = { code: "WrongModel" };
  await assert.rejects(Output.open(places, "another", kept), other);
  const second = await Output.open(places, "m", kept);
  const before = asked.length;
  const done = kept.answers.size + kept.mark.next;
  const rest = {
    async answer({ index }: Line) {
      asked.push(index);
      return { text: `answer ${index}`, failed: index === 19 };
    },
  };
  const changed = lines.map((line, i) => (i === 0 ? { ...line, text: "other" } : line));
  if (kept.mark.next > 0) {
    const wrong = runBatch({
      rows: rows(changed),
      workers: [rest],
      chunk: 4,
      output: second,
      signal: new AbortController().signal,
    });
    await assert.rejects(wrong, { code: "SourceChanged" });
  }
  await runBatch({
    rows: rows(lines),
    workers: [rest],
    chunk: 4,
    output: second,
    signal: new AbortController().signal,
  });
  await second.finish();
  assert.equal(asked.length - before, 20 - done, "nothing is asked twice");
  const expected = lines.slice(0, 19).map(({ index }) => `answer ${index}\n`);
  assert.equal(await readFile(places.out, "utf8"), expected.join(""));
  assert.equal(await readFile(places.errors, "utf8"), "answer 19\n");
});

test("records end at LF alone, and one without its LF does not count", async (context) => {
  const dir = await folder(context);
  const places = { out: path.join(dir, "a.jsonl"), errors: path.join(dir, "b.jsonl"), always: false };
  // JSON leaves these as they are, and readers of lines elsewhere end lines at them.
  const texts = ["a\u2028b", "c\u2029d", "e\u0085f", "g"];
  const put = async (output: Output, from: number) => {
    for (const [i, text] of texts.entries()) {
      if (i < from) continue;
      output.begin(i, "");
      output.put(i, { text, failed: false });
    }
    await output.stop();
  };
  await put(await Output.open(places, "m", null), 0);
  const answers = async () => [...(await leftBy(places))!.answers.values()].map(({ text }) => text);
  assert.deepEqual(await answers(), texts);
  const journal = journalOf(places);
  await truncate(journal, (await stat(journal)).size - 1);
  assert.deepEqual(await answers(), texts.slice(0, 3));
  await put(await Output.open(places, "m", await leftBy(places)), 3);
  assert.deepEqual(await answers(), texts);
});

test("a full disk is told by its file, and what was done is there when it has room again", async (context) => {
  const dir = await folder(context);
  const small = await mkdtemp(path.join(tmpdir(), "ternlight-small-"));
  try {
    execFileSync("mount", ["-t", "tmpfs", "-o", "size=96k", "tmpfs", small], { stdio: "pipe" });
  } catch {
    return context.skip("a file system of 96 kB cannot be mounted here: mount needs root");
  }
  context.after(async () => {
    execFileSync("umount", ["-l", small]);
    await rm(small, { recursive: true });
  });
  const [whole, out] = [path.join(dir, "whole.jsonl"), path.join(small, "out.jsonl")];
  const settings = { lines: 900, chunk: 8, delay: 1 };
  await simulated({ ...settings, out: whole });
  const failure = await simulated({ ...settings, out }).catch((error) => error);
  assert.match(failure.stderr, /Unwritable|cannot be written/);
  assert.match(failure.stderr, /ENOSPC/);
  // A server's batch goes on by itself: the command alone names --resume.
  assert.match(failure.stderr, /ENOSPC[^;]*; what is done is kept$/m);
  assert.ok(!existsSync(out));
  execFileSync("mount", ["-o", "remount,size=8m", small]);
  const begun = path.join(dir, "begun");
  await simulated({ ...settings, out, begun });
  assert.deepEqual(await both(out), await both(whole));
  const again = (await readFile(begun, "utf8")).trimEnd().split("\n");
  assert.ok(again.length < settings.lines, "what was kept is not computed again");
});

/** Bytes of the lines of a test of memory, about: more than a run may take. */
const MUCH = 400e6;
/** Megabytes that it may take. */
const MAX_MEMORY = 320;

/** Lines as a program writes them that does not wait to be asked, packed or not. */
const packings: [name: string, lines: number, pack: () => NodeJS.ReadWriteStream][] = [
  ["as it is", Number(process.env.BATCH_LINES ?? 150_000), () => new PassThrough()],
  ["in gzip", 40_000, () => zlib.createGzip({ level: 1 })],
  ["in Zstandard", 40_000, () => zlib.createZstdCompress({ params: { [zlib.constants.ZSTD_c_compressionLevel]: 1 } })],
];

for (const [name, lines, pack] of packings) {
  test(`memory does not grow with the number of lines of standard input, ${name}`, async (context) => {
    const dir = await folder(context);
    const settings = JSON.stringify({ input: "-", out: path.join(dir, "out.jsonl") });
    const next = random(1);
    // Of letters, so that what is packed is not all gone.
    const letters = Array.from({ length: 4096 }, () => String.fromCharCode(97 + Math.floor(26 * next()))).join("");
    const length = Math.min(3000, Math.floor(MUCH / lines));
    function* written() {
      for (let i = 0; i < lines; i++) {
        const from = Math.floor(1000 * next());
        yield `${JSON.stringify({ prompt: `line ${i} ${letters.slice(from, from + length)}` })}\n`;
      }
    }
    // Half a kilobyte that is kept of each line would be more than there is.
    const child = spawn(process.execPath, ["--max-old-space-size=64", script, settings], {
      stdio: ["pipe", "pipe", "inherit"],
    });
    let said = "";
    child.stdout.on("data", (text) => {
      said += text;
    });
    await pipeline(written, pack(), child.stdin);
    assert.deepEqual(await once(child, "close"), [0, null]);
    const found = JSON.parse(said);
    assert.equal(found.done, lines);
    assert.equal(found.failed, lines / 100);
    assert.ok(found.megabytes < MAX_MEMORY, `${found.megabytes} MB`);
    const shown = `${found.seconds.toFixed(1)} s, at most ${found.megabytes.toFixed(0)} MB of memory`;
    context.diagnostic(`${lines} lines: ${shown}`);
  });
}

test("no two runs write one file, whatever it is to each of them", async (context) => {
  const dir = await folder(context);
  const at = (out: string, errors: string) => ({
    out: path.join(dir, out),
    errors: path.join(dir, errors),
    always: true,
  });
  const first = await lockAll(filesOf(at("a", "errors")));
  const others = [
    at("a", "b"),
    at("b", "errors"),
    at("b", "a"),
    at("errors", "b"),
    at("b", "a.journal"),
    at("a.part", "b"),
  ];
  for (const places of others) {
    const error = await lockAll(filesOf(places)).catch((error) => error);
    assert.match(error.message, /\/(a|errors)(\.part|\.journal)? is being written by another run/);
  }
  // Those that were refused hold none of their names.
  const beside = await lockAll(filesOf(at("b", "c")));
  for (const one of [beside, first]) one.release();
});

test("input that comes slowly is read to its end", async (context) => {
  const out = path.join(await folder(context), "out.jsonl");
  const places = { out, errors: errorsOf(out), always: true };
  const output = await Output.open(places, "slow", null);
  // Longer than answers stay out of the parts, and more lines than may be under way.
  const [blocks, lines, ms] = [3, 200, 1100];
  async function* rows(): AsyncGenerator<Line[]> {
    for (let block = 0; block < blocks; block++) {
      const line = (i: number) => ({ index: block * lines + i, text: `{"prompt":"${i}"}` });
      yield Array.from({ length: lines }, (_, i) => line(i));
      await wait(ms);
    }
  }
  const worker = { answer: async ({ text }: Line) => ({ text, failed: false }) };
  const signal = AbortSignal.timeout(20_000);
  await runBatch({ rows: rows(), workers: [worker], chunk: 1, output, signal });
  await output.finish();
  assert.equal(linesOf(out), blocks * lines);
});

test("places that cannot be written are told before anything is computed", async (context) => {
  const dir = await folder(context);
  await mkdir(path.join(dir, "folder"));
  const at = (out: string) => ({ out: path.join(dir, out), errors: path.join(dir, "e"), always: false });
  const taken = { code: "Unwritable", message: /folder cannot be written: it is a folder/ };
  await assert.rejects(leftBy(at("folder")), taken);
  await assert.rejects(leftBy({ ...at("e"), errors: path.join(dir, "folder") }), taken);
  await assert.rejects(leftBy({ ...at("e"), out: devNull }), { code: "Unwritable", message: /it is no regular file/ });
  await assert.rejects(Output.open(at("none/out"), "m", null), { code: "Unwritable" });
  await writeFile(path.join(dir, "cut.journal"), "no journal\n");
  assert.equal(await leftBy(at("cut")), null);
  const error = await Output.open(at("none/out"), "m", null).catch((error) => error);
  assert.ok(error instanceof EngineError);
  assert.match(error.message, /none/);
});
