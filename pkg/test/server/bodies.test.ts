/** Bodies that are too large, over a socket: a client that is still sending must read why. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { error } from "./support/app.ts";
import { runtimes, serve } from "./support/command.ts";

const MEGABYTE = 1_000_000;

for (const runtime of Object.keys(runtimes)) {
  test(`${runtime}: a client reads that its body is too large`, async (context) => {
    const { url } = await serve(context, ["--log", "none", "--max-body", String(MEGABYTE)], { runtime });
    const send = (body: BodyInit) =>
      fetch(`${url}/v1/completions`, { method: "POST", body, duplex: "half" } as RequestInit);
    const piece = new Uint8Array(MEGABYTE).fill(32);
    for (const megabytes of [2, 4, 20]) {
      const whole = new Uint8Array(megabytes * MEGABYTE).fill(32);
      const pieces = () =>
        new ReadableStream({
          start: (controller) => {
            for (let i = 0; i < megabytes; i++) controller.enqueue(piece);
            controller.close();
          },
        });
      // Several, as it is a race between what is sent and the end of the connection.
      for (let i = 0; i < 4; i++) {
        for (const body of [whole, pieces()]) assert.equal((await error(send(body), 413)).code, "body_too_large");
      }
    }
    assert.equal((await fetch(`${url}/health`)).status, 200);
  });
}
