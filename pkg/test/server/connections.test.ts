/** Connections that ask for nothing, or for more than there is: each runtime closes them by itself. */

import assert from "node:assert/strict";
import { connect, type Socket } from "node:net";
import { type TestContext, test } from "node:test";
import { runtimes, type Server, serve, until } from "./support/command.ts";

const names = Object.keys(runtimes);

/** What a connection is told by the time that it is closed. */
function closed({ url }: Server, text: string, more = ""): Promise<string> {
  const socket = connect(Number(new URL(url).port), "127.0.0.1", () => socket.write(text));
  const dripping = more === "" ? undefined : setInterval(() => socket.write(more), 500);
  let answer = "";
  socket.on("data", (data) => (answer += data));
  socket.on("error", () => {});
  return new Promise((resolve) => {
    socket.on("close", () => {
      clearInterval(dripping);
      resolve(answer);
    });
  });
}

async function refusesSilence(context: TestContext, runtime: string): Promise<void> {
  const server = await serve(context, [], { runtime });
  const head = "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\n";
  const [wide, odd, ...slow] = await Promise.all([
    closed(server, `${head}x-a: ${"y".repeat(40_000)}\r\n\r\n`),
    closed(server, "GET / HTTP/1.1\r\nhost: localhost\r\ncontent-length: x\r\n\r\n"),
    closed(server, ""),
    closed(server, `${head}x-a:`),
    closed(server, `${head}x-a:`, "y"),
  ]);
  for (const answer of slow) assert.match(answer, /^(HTTP\/1.1 408|$)/, runtime);
  assert.match(wide!, /^HTTP\/1.1 431/, runtime);
  assert.match(odd!, /^HTTP\/1.1 400/, runtime);
  assert.equal((await fetch(`${server.url}/health`)).status, 200, runtime);
}

test("a client that says nothing, a header without end, and one that drips are closed", (context) =>
  Promise.all(names.map((runtime) => refusesSilence(context, runtime))).then(() => {}));

for (const runtime of names) {
  test(`${runtime}: there are 1024 connections at most, and places are free again`, async (context) => {
    const { url } = await serve(context, [], { runtime });
    const sockets: Socket[] = [];
    context.after(() => {
      for (const socket of sockets) socket.destroy();
    });
    let refused = 0;
    for (let i = 0; i < 1030; i++) {
      const socket = connect(Number(new URL(url).port), "127.0.0.1");
      socket.on("error", () => {});
      socket.on("close", () => refused++);
      sockets.push(socket);
      await new Promise((resolve) => socket.once("connect", resolve));
    }
    await until(() => refused >= 6);
    assert.equal(refused, 6);
    for (const socket of sockets) socket.destroy();
    await until(async () => (await fetch(`${url}/health`).catch(() => null))?.status === 200);
  });
}
