/** What the server writes first of a stream. */

import assert from "node:assert/strict";
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { connect, type Socket } from "node:net";
import { type TestContext, test } from "node:test";
import { listen } from "../../src/cli/listen.ts";
import { served } from "./support/app.ts";
import { runtimes, serve } from "./support/command.ts";

const BODY = JSON.stringify({ model: "demo", prompt: "Once upon a time", temperature: 0, max_tokens: 4, stream: true });
const BEGINNING = /^HTTP\/1\.1 200 [\s\S]*\r\n\r\n[0-9a-f]+\r\n(id: .*\n)?data: \{.*"text":"/;

/** What each read from the socket finds of a stream. */
function reads(url: string, body: string): Promise<string[]> {
  const { port, host } = new URL(url);
  const head = `POST /v1/completions HTTP/1.1\r\nhost: ${host}\r\nconnection: close\r\n`;
  const socket = connect(Number(port), "127.0.0.1", () =>
    socket.write(`${head}content-length: ${body.length}\r\n\r\n${body}`),
  );
  const found: string[] = [];
  socket.on("data", (data) => found.push(data.toString()));
  return new Promise((resolve, reject) => socket.on("close", () => resolve(found)).on("error", reject));
}

/** What a socket of the server is given to send, one text a call of the system. */
function writes(context: TestContext): string[] {
  const found: string[] = [];
  const watch = (message: unknown) => {
    const { socket } = message as { socket: Socket };
    const { _write: write, _writev: writev } = socket;
    socket._write = function (chunk, ...more) {
      found.push(chunk.toString());
      return write.call(this, chunk, ...more);
    };
    socket._writev = function (chunks, done) {
      found.push(chunks.map(({ chunk }) => chunk.toString()).join(""));
      return writev!.call(this, chunks, done);
    };
  };
  subscribe("net.server.socket", watch);
  context.after(() => unsubscribe("net.server.socket", watch));
  return found;
}

test("the head of a stream and its first event are one write, before an immediate", async (context) => {
  const app = await served(context);
  const written = writes(context);
  let behind = 0;
  const server = await listen({ host: "127.0.0.1", port: 0 }, async (request) => {
    const response = await app.fetch(request);
    setImmediate(() => (behind += written.length === 0 ? 1 : 0));
    return response;
  });
  context.after(() => server.close());
  for (let i = 0; i < 5; i++) {
    written.length = 0;
    await reads(server.url, BODY);
    assert.match(written[0]!, BEGINNING);
  }
  assert.equal(behind, 0, "nothing was written before an immediate");
});

for (const runtime of Object.keys(runtimes)) {
  test(`${runtime}: the first read of a stream has its head and first event`, async (context) => {
    const { url } = await serve(context, ["--name", "demo"], { runtime });
    for (let i = 0; i < 5; i++) assert.match((await reads(url, BODY))[0]!, BEGINNING);
  });
}
