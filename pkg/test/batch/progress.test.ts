/** What a batch, and a job on a queue, tell of themselves where nobody watches. */

import assert from "node:assert/strict";
import { mock, test } from "node:test";
import type { Output } from "../../src/batch/output.ts";
import { BatchProgress, QueueProgress } from "../../src/cli/batch_progress.ts";
import { Terminal } from "../../src/cli/terminal.ts";

/** A terminal that nobody watches, and what it was told since the last look. */
function recorded(): { terminal: Terminal; told: () => string[] } {
  const all: string[] = [];
  const stream = {
    write(text: string | Uint8Array, done: () => void) {
      all.push(String(text));
      done();
    },
  };
  return { terminal: new Terminal({ out: stream, err: stream, json: false }), told: () => all.splice(0) };
}

test("a batch tells the time that is left by its lines, of which it knows those that were read", (context) => {
  context.after(() => mock.reset());
  let now = 0;
  mock.method(performance, "now", () => now);
  const { terminal, told } = recorded();
  const input: { size: number | null; read: number } = { size: 100_000, read: 0 };
  const output = { done: 0, failed: 0 };
  const begin = () => new BatchProgress(terminal, { name: "in", bytes: null as never, ...input }, output as Output);
  const show = (progress: BatchProgress, done: number, lines: number, whole = false) => {
    now += 10_000;
    output.done = done;
    progress.show({ lines, whole });
    return told();
  };
  // A quarter of the bytes were 250 lines, so that the whole are 1000.
  input.read = 25_000;
  const first = begin();
  assert.deepEqual(show(first, 0, 250), ["0 lines · 0.00 lines/s\n"]);
  assert.deepEqual(show(first, 100, 250), ["100 lines · 5.00 lines/s · 3 min 0 s left\n"]);
  assert.deepEqual(show(first, 240, 250), ["240 lines · 8.00 lines/s · 1 min 35 s left\n"]);
  // In the end they are known.
  assert.deepEqual(show(first, 400, 600, true), ["400 lines · 10.0 lines/s · 20 s left\n"]);
  assert.deepEqual(show(first, 600, 600, true), ["600 lines · 12.0 lines/s · 0.0 s left\n"]);
  // What was done before is no part of the rate.
  [input.read, output.done] = [100_000, 500];
  const resumed = begin();
  assert.deepEqual(show(resumed, 600, 1000), ["600 lines · 10.0 lines/s · 40 s left\n"]);
  // Of standard input nobody knows the size, until it ends.
  [input.size, output.done] = [null, 0];
  const standard = begin();
  assert.deepEqual(show(standard, 100, 250), ["100 lines · 10.0 lines/s\n"]);
  assert.deepEqual(show(standard, 200, 250, true), ["200 lines · 10.0 lines/s · 5.0 s left\n"]);
});

test("a job tells its rate and the time that is left every half minute, off a terminal", (context) => {
  context.after(() => mock.reset());
  mock.timers.enable({ apis: ["setInterval"] });
  let now = 0;
  mock.method(performance, "now", () => now);
  const { terminal, told } = recorded();
  const progress = new QueueProgress(terminal, 10_000);
  const pass = (seconds: number, lines: number, failed = 0) => {
    progress.show({ lines, failed, total: 10_000 });
    for (let at = 0; at < seconds; at += 30) {
      now += 30_000;
      mock.timers.tick(30_000);
    }
    return told();
  };
  assert.deepEqual(pass(30, 0), ["0 of 10000 lines · 0.00 lines/s\n"]);
  assert.deepEqual(pass(30, 600, 1), ["600 of 10000 lines · 10.0 lines/s · 1 error · 15 min 40 s left\n"]);
  // What came long ago is no part of the rate.
  assert.equal(pass(600, 600).at(-1), "600 of 10000 lines · 0.00 lines/s\n");
  assert.equal(pass(30, 3600).at(-1), "3600 of 10000 lines · 10.0 lines/s · 10 min 40 s left\n");
  progress.end();
  assert.deepEqual(pass(60, 4000), []);
});
