/** Flow control of pieces, without a worker: the three ends are connected by plain calls. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Acknowledger, ALL_PIECES, Receiver, Sender, WINDOW } from "../../src/rpc/backpressure.ts";

/** The three ends connected; messages arrive at once. */
function connected() {
  const pauses: boolean[] = [];
  const acknowledged: number[] = [];
  const sender = new Sender((paused) => pauses.push(paused));
  const receiver = new Receiver();
  const reader = new Acknowledger((total) => {
    acknowledged.push(total);
    receiver.read(total);
    sender.read(total);
  });
  let total = 0;
  const send = (count: number) => {
    total += count;
    sender.sent(total);
    receiver.received(count);
  };
  const read = (count: number) => {
    for (let i = 0; i < count; i++) reader.read();
  };
  return { pauses, acknowledged, receiver, reader, send, read };
}

test("a generation pauses at a full window and continues at half of it", () => {
  const { pauses, send, read } = connected();
  send(WINDOW - 1);
  assert.deepEqual(pauses, []);
  send(1);
  assert.deepEqual(pauses, [true]);
  // Pieces that were already on their way change nothing.
  send(8);
  assert.deepEqual(pauses, [true]);
  read(WINDOW / 2 + 7);
  assert.deepEqual(pauses, [true], "one more than half of the window is unread");
  read(WINDOW / 4 - 7);
  assert.deepEqual(pauses, [true, false]);
});

test("a reader that keeps up acknowledges four times a window and never pauses the worker", () => {
  const { pauses, acknowledged, send, read } = connected();
  for (let piece = 0; piece < 4 * WINDOW; piece++) {
    send(1);
    read(1);
  }
  assert.deepEqual(pauses, []);
  assert.deepEqual(
    acknowledged,
    Array.from({ length: 16 }, (_, i) => ((i + 1) * WINDOW) / 4),
  );
});

test("the owner counts as idle as soon as the worker may have paused", () => {
  const { receiver, pauses, send, read } = connected();
  send(WINDOW / 2);
  assert.equal(receiver.idle, false);
  send(1);
  assert.equal(receiver.idle, true);
  send(WINDOW);
  assert.deepEqual([receiver.idle, pauses], [true, [true]]);
  read(WINDOW + WINDOW / 4);
  assert.deepEqual([receiver.idle, pauses], [false, [true, false]], "a worker that runs again is waited for");
});

test("after ALL_PIECES nothing pauses and nothing more is acknowledged", () => {
  const { pauses, acknowledged, receiver, reader, send, read } = connected();
  send(WINDOW);
  assert.deepEqual(pauses, [true]);
  reader.all();
  reader.all();
  send(100 * WINDOW);
  read(WINDOW);
  assert.deepEqual([pauses, acknowledged, receiver.idle], [[true, false], [ALL_PIECES], false]);
});
