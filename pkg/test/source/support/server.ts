/** A server on loopback that knows what it was asked, and can misbehave. */

import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { TestContext } from "node:test";
import type { Files } from "./split.ts";

export interface Behaviour {
  /** Answers a range with the whole file. */
  noRanges?: boolean;
  /** Answers what it does not have with a page, as single-page apps do. */
  fallback?: boolean;
  /** Cuts connections after so many bytes of a body; `times` of them, or all. */
  cut?: { after: number; times?: number };
  /** Changes what is announced. */
  announce?(headers: Record<string, string>, path: string): Record<string, string>;
  /** Answers instead; true when it did. */
  answer?(request: IncomingMessage, response: ServerResponse): boolean;
}

export interface Asked {
  method: string;
  path: string;
  range: string | undefined;
  status: number;
  /** Bytes of the body that were sent. */
  sent: number;
}

export async function serveFiles(
  context: TestContext,
  files: Files,
  behaviour: Behaviour = {},
): Promise<{ url: string; asked: Asked[] }> {
  const asked: Asked[] = [];
  let cuts = behaviour.cut?.times ?? Number.POSITIVE_INFINITY;
  const server = createServer((request, response) => {
    const path = decodeURIComponent(new URL(request.url!, "http://loopback").pathname.slice(1));
    const { method = "", headers } = request;
    // That of a question is only there to have it answered unencoded.
    const entry: Asked = { method, path, range: method === "HEAD" ? undefined : headers.range, status: 0, sent: 0 };
    asked.push(entry);
    if (behaviour.answer?.(request, response)) return;
    const file = Object.hasOwn(files, path) ? files[path]! : null;
    const send = (status: number, headers: Record<string, string>, body: Uint8Array) => {
      entry.status = status;
      const all = { "content-length": String(body.length), ...headers };
      response.writeHead(status, behaviour.announce?.(all, path) ?? all);
      if (request.method === "HEAD") return response.end();
      const { after } = behaviour.cut ?? { after: body.length };
      if (after < body.length && cuts > 0) {
        cuts--;
        entry.sent = after;
        return response.write(body.subarray(0, after), () => setTimeout(() => response.destroy(), 20));
      }
      entry.sent = body.length;
      response.end(body);
    };
    if (!file) {
      const page = new TextEncoder().encode("\n<!doctype html><title>app</title>");
      if (behaviour.fallback) return send(200, { "content-type": "text/html; charset=utf-8" }, page);
      return send(404, { "content-type": "text/plain" }, new TextEncoder().encode("404\n"));
    }
    const [, from, to] = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? "") ?? [];
    if (behaviour.noRanges || !from) return send(200, {}, file);
    if (Number(from) >= file.length) return send(416, { "content-range": `bytes */${file.length}` }, new Uint8Array());
    const end = Math.min(Number(to) + 1, file.length);
    const range = `bytes ${from}-${end - 1}/${file.length}`;
    send(206, { "content-range": range }, file.subarray(Number(from), end));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  context.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`, asked };
}
