/** A server on loopback that misbehaves as a seed says, in ways that servers and the networks before them do. */

import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

/** What may befall one request. */
export const faults = [
  "reset",
  "cut",
  "stall",
  "short",
  "long",
  "total",
  "flip",
  "whole",
  "redirect",
  "forbidden",
  "busy",
  "limited",
  "changed",
  "unnamed",
] as const;
export type Fault = (typeof faults)[number];

export type Random = () => number;

/** A small generator of numbers from 0 to 1 (mulberry32). */
export function randomOf(seed: number): Random {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

export class FaultyServer {
  /** The file as it is now; another version has other bytes. */
  body: Uint8Array;
  version = 0;
  /** Those that happen now, and how often: of each request, from 0 to 1. */
  faults: readonly Fault[] = [];
  rate = 0;
  /** Has the file in no parts. */
  ranges = true;
  readonly happened = new Map<Fault, number>();
  requests: { method: string; range: string | undefined; sent: number }[] = [];
  url = "";
  readonly #random: Random;
  readonly #make: (version: number) => Uint8Array;
  readonly #server = createServer((request, response) => this.#answer(request, response));

  constructor(random: Random, make: (version: number) => Uint8Array) {
    this.#random = random;
    this.#make = make;
    this.body = make(0);
  }

  async listen(): Promise<this> {
    await new Promise<void>((resolve) => this.#server.listen(0, "127.0.0.1", resolve));
    this.url = `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/model.gguf`;
    return this;
  }

  close(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }

  change(): void {
    this.version++;
    this.body = this.#make(this.version);
  }

  #answer(request: IncomingMessage, response: ServerResponse): void {
    const { method = "", headers, socket } = request;
    const entry = { method, range: headers.range, sent: 0 };
    this.requests.push(entry);
    response.on("error", () => {});
    const random = this.#random;
    const fault =
      this.faults.length > 0 && random() < this.rate ? this.faults[Math.floor(random() * this.faults.length)]! : null;
    if (fault) this.happened.set(fault, (this.happened.get(fault) ?? 0) + 1);
    if (fault === "reset") return void socket.destroy();
    if (fault === "redirect") return void response.writeHead(302, { location: "/elsewhere.gguf" }).end();
    if (fault === "forbidden") return void response.writeHead(403).end("no");
    if (fault === "busy") return void response.writeHead(503).end("busy");
    if (fault === "limited") return void response.writeHead(429, { "retry-after": "0" }).end();
    if (fault === "changed") this.change();

    const { body } = this;
    const whole = fault === "whole" || !this.ranges;
    const [, from, to] = whole ? [] : (/^bytes=(\d+)-(\d+)$/.exec(headers.range ?? "") ?? []);
    const start = Number(from ?? 0);
    if (start >= body.length) return void response.writeHead(416, { "content-range": `bytes */${body.length}` }).end();
    const end = from === undefined ? body.length : Math.min(Number(to) + 1, body.length);
    let part = Buffer.from(body.subarray(start, end));
    const fields: Record<string, string> = { "content-length": String(part.length) };
    if (fault !== "unnamed") fields.etag = `"v${this.version}"`;
    const total = fault === "total" ? body.length + 1 + Math.floor(random() * 1000) : body.length;
    if (from !== undefined) fields["content-range"] = `bytes ${start}-${end - 1}/${total}`;
    const somewhere = Math.floor(random() * part.length);
    if (fault === "flip") part[somewhere]! ^= 1 + Math.floor(random() * 255);
    if (fault === "short") {
      part = part.subarray(0, somewhere);
      fields["content-length"] = String(part.length);
    }
    if (fault === "long") {
      part = Buffer.concat([part, Buffer.alloc(1000)]);
      fields["content-length"] = String(part.length);
    }
    response.writeHead(from === undefined ? 200 : 206, fields);
    if (method === "HEAD") return void response.end();
    if (fault !== "cut" && fault !== "stall") {
      entry.sent = part.length;
      return void response.end(part);
    }
    entry.sent = somewhere;
    response.write(part.subarray(0, somewhere), () => {
      if (fault === "cut") setTimeout(() => socket.destroy(), 5);
      // A slow drip, and then nothing more.
      else if (somewhere < part.length) response.write(part.subarray(somewhere, somewhere + 1));
    });
  }
}
