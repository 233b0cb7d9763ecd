import assert from "node:assert/strict";
import { test } from "node:test";
import { Client } from "../../src/rpc/client.ts";
import type { WorkerPort } from "../../src/rpc/port.ts";
import { EngineError } from "../../src/types/errors.ts";

test("close() waits for the worker's end, and what is pending with it", async () => {
  let gone = () => {};
  let times = 0;
  const port: WorkerPort = {
    post() {},
    onmessage: null,
    onerror: null,
    terminate() {
      times++;
      return new Promise<void>((resolve) => (gone = resolve));
    },
  };
  const client = new Client(port);
  const told: string[] = [];
  client.call("status", {}).catch(({ code }) => told.push(code));
  const closed = new EngineError("Closed", "the model is closed");
  const closing = [client.close(closed), client.close(closed)].map((close) => close.then(() => told.push("closed")));
  await new Promise((next) => setTimeout(next, 10));
  assert.deepEqual(told, []);
  gone();
  await Promise.all(closing);
  assert.deepEqual(told.toSorted(), ["Closed", "closed", "closed"]);
  assert.equal(times, 1);
});
