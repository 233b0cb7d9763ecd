/** Who waits for a turn, and who leaves before it. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Gate } from "../../src/server/gate.ts";

const { signal } = new AbortController();

/** Work that ends when it is told to. */
function work(gate: Gate, how: "shared" | "alone", signal: AbortSignal, log: string[], name: string) {
  let end = () => {};
  const ended = new Promise<void>((resolve) => {
    end = resolve;
  });
  const done = gate[how](signal, async () => {
    log.push(name);
    await ended;
  });
  return { done, end };
}

const settle = () => new Promise((resolve) => setImmediate(resolve));

test("an abort ends the wait for a turn at once, and the others keep theirs", { timeout: 10_000 }, async () => {
  const gate = new Gate();
  const log: string[] = [];
  const [first, second] = [new AbortController(), new AbortController()];
  const running = work(gate, "shared", signal, log, "running");
  const alone = work(gate, "alone", first.signal, log, "alone");
  const next = work(gate, "alone", signal, log, "next");
  const late = work(gate, "shared", second.signal, log, "late");
  const last = work(gate, "shared", signal, log, "last");
  await settle();
  // The one that waits for those that work, and one that waits for it.
  first.abort(new Error("enough"));
  await assert.rejects(alone.done, { message: "enough" });
  second.abort(new Error("me too"));
  await assert.rejects(late.done, { message: "me too" });
  await settle();
  assert.deepEqual(log, ["running"]);
  running.end();
  await running.done;
  await settle();
  assert.deepEqual(log, ["running", "next"]);
  next.end();
  await next.done;
  last.end();
  await last.done;
  assert.deepEqual(log, ["running", "next", "last"]);
});

test("one that leaves the queue lets nobody in before those who came earlier", { timeout: 10_000 }, async () => {
  const gate = new Gate();
  const log: string[] = [];
  const abort = new AbortController();
  const one = work(gate, "alone", signal, log, "one");
  const two = work(gate, "alone", abort.signal, log, "two");
  const three = work(gate, "alone", signal, log, "three");
  await settle();
  abort.abort(new Error("enough"));
  await assert.rejects(two.done, { message: "enough" });
  await settle();
  assert.deepEqual(log, ["one"]);
  one.end();
  await one.done;
  three.end();
  await three.done;
  assert.deepEqual(log, ["one", "three"]);
});
