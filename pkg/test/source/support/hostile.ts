/** Answers that no server should give, and files of a cache that no writer has written, each by a seed. */

import type { AddressInfo } from "node:net";
import { createServer, type Socket } from "node:net";
import { brotliCompressSync, gzipSync } from "node:zlib";
import type { Random } from "./faulty.ts";

const pick = <T>(random: Random, items: readonly T[]): T => items[Math.floor(random() * items.length)]!;

/** Numbers as they stand in headers: small, near limits, beyond them, and none at all. */
function anyNumber(random: Random): string {
  const near = pick(random, [
    0,
    1,
    15,
    16,
    255,
    4096,
    262_143,
    262_144,
    524_288,
    2 ** 31,
    2 ** 32,
    2 ** 40,
    2 ** 47,
    2 ** 53,
  ]);
  return pick(random, [
    String(near),
    String(near + 1),
    String(Math.floor(random() * 1e6)),
    `${near}${"0".repeat(Math.floor(random() * 30))}`,
    "-1",
    "",
    "*",
    "NaN",
    "1e9",
    "0x10",
    " 7 ",
    "٣",
    "1.5",
  ]);
}

function anyBytes(random: Random, length: number): Buffer {
  const kind = random();
  if (kind < 0.2) return Buffer.alloc(length);
  const bytes = Buffer.alloc(length);
  for (let i = 0; i < length; i += 1 + Math.floor(length / 500)) bytes[i] = Math.floor(random() * 256);
  bytes.write(pick(random, ["GGUF", "<!doctype html>", "{", '{"a":', "\x1f\x8b\b", "", "  <html"]), "latin1");
  return bytes;
}

const STATUS = [
  200, 206, 206, 206, 200, 204, 205, 301, 302, 304, 308, 400, 401, 403, 404, 410, 416, 429, 500, 503, 100, 999,
];

/** One answer as raw bytes, and whether the connection is then cut, left open or closed. */
export function anyAnswer(random: Random, file: Uint8Array, range: [number, number] | null, isHead: boolean) {
  const honest = random() < 0.4;
  const [from, to] = range ?? [0, file.length - 1];
  const end = Math.min(to + 1, file.length);
  const status = honest ? (range ? 206 : 200) : pick(random, STATUS);
  let body: Buffer =
    honest || random() < 0.5
      ? Buffer.from(file.subarray(from, end))
      : anyBytes(random, Math.floor(random() ** 3 * 300_000));
  const headers: [string, string][] = [];
  const say = (name: string, right: string, share = 0.5) => {
    if (honest || random() < share) headers.push([name, right]);
    else if (random() < 0.7) headers.push([name, anyText(random, right)]);
  };
  if (!honest && random() < 0.15) {
    const encoding = pick(random, ["gzip", "br", "deflate", "zstd", "gzip, gzip", "identity", "nonsense"]);
    headers.push(["content-encoding", encoding]);
    if (random() < 0.7)
      body = encoding === "br" ? brotliCompressSync(body, { params: { 1: 1 } }) : gzipSync(body, { level: 1 });
  }
  const chunked = !honest && random() < 0.2;
  if (chunked) headers.push(["transfer-encoding", "chunked"]);
  else say("content-length", String(body.length), 0.7);
  if (!honest && random() < 0.1)
    headers.push(["content-range", `bytes ${from}-${end - 1}/${2 ** (36 + Math.floor(random() * 24))}`]);
  else if (status === 206 || random() < 0.1) say("content-range", `bytes ${from}-${end - 1}/${file.length}`, 0.6);
  say("etag", '"1"', 0.6);
  if (random() < 0.1) headers.push(["last-modified", anyText(random, "Sat, 21 Nov 2026 10:00:00 GMT")]);
  if (random() < 0.1)
    headers.push(["content-type", pick(random, ["text/html", "text/html; charset=x", "application/json", "\t"])]);
  if (status >= 400)
    headers.push(["retry-after", pick(random, ["0", "0", "999999", "soon", "-5", "Thu, 01 Jan 1970 00:00:00 GMT"])]);
  if (status > 300 && status < 400 && random() < 0.8) {
    headers.push([
      "location",
      pick(random, ["/model", "/model?again", "//", "file:///etc/passwd", "data:,x", "http://127.0.0.1:9/", "%zz", ""]),
    ]);
  }
  const lines = headers.map(([name, value]) => `${name}: ${value}\r\n`).join("");
  const head = Buffer.from(
    `${honest || random() < 0.98 ? "HTTP/1.1" : "HTTP/7"} ${status} x\r\n${lines}\r\n`,
    "latin1",
  );
  if (isHead) body = Buffer.alloc(0);
  else if (chunked) body = inChunks(random, body);
  const ends = honest ? "keep" : pick(random, ["keep", "keep", "close", "cut", "stall"] as const);
  const sent = ends === "cut" ? Math.floor(random() * (head.length + body.length)) : head.length + body.length;
  return { bytes: Buffer.concat([head, body]).subarray(0, sent), ends };
}

function anyText(random: Random, right: string): string {
  return pick(random, [
    anyNumber(random),
    right.replace(/\d+/g, () => anyNumber(random)),
    `bytes ${anyNumber(random)}-${anyNumber(random)}/${anyNumber(random)}`,
    right.repeat(1 + Math.floor(random() * 30)),
    `"${"x".repeat(Math.floor(random() * 3000))}"`,
    `W/"${String.fromCharCode(0x80 + Math.floor(random() * 0x7f))}"`,
    '"\\"',
  ]);
}

function inChunks(random: Random, body: Buffer): Buffer {
  const parts: Buffer[] = [];
  for (let at = 0; at < body.length; ) {
    const length = 1 + Math.floor(random() * 50_000);
    const part = body.subarray(at, at + length);
    const size = random() < 0.05 ? pick(random, ["ffffffffffffffff", "-1", "zz", "0"]) : part.length.toString(16);
    parts.push(Buffer.from(`${size}\r\n`), part, Buffer.from("\r\n"));
    at += length;
  }
  if (random() < 0.9) parts.push(Buffer.from("0\r\n\r\n"));
  return Buffer.concat(parts);
}

/** A server that reads requests and writes what a seed says, or the truth while `random` is null. */
export class HostileServer {
  random: Random | null = null;
  url = "";
  readonly #file: Uint8Array;
  readonly #sockets = new Set<Socket>();
  readonly #server = createServer((socket) => this.#serve(socket));

  constructor(file: Uint8Array) {
    this.#file = file;
  }

  async listen(): Promise<this> {
    await new Promise<void>((resolve) => this.#server.listen(0, "127.0.0.1", resolve));
    this.url = `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/model`;
    return this;
  }

  close(): void {
    for (const socket of this.#sockets) socket.destroy();
    this.#server.close();
  }

  #serve(socket: Socket): void {
    this.#sockets.add(socket);
    socket.on("close", () => this.#sockets.delete(socket));
    socket.on("error", () => {});
    let text = "";
    socket.on("data", (data) => {
      text += data.toString("latin1");
      for (let end = text.indexOf("\r\n\r\n"); end >= 0; end = text.indexOf("\r\n\r\n")) {
        const request = text.slice(0, end);
        text = text.slice(end + 4);
        this.#answer(socket, request);
      }
    });
  }

  #answer(socket: Socket, request: string): void {
    const [, from, to] = /^range: bytes=(\d+)-(\d+)$/im.exec(request) ?? [];
    const range: [number, number] | null = from === undefined ? null : [Number(from), Number(to)];
    const isHead = request.startsWith("HEAD");
    const answer = anyAnswer(this.random ?? (() => 0.1), this.#file, range, isHead);
    socket.write(answer.bytes);
    if (answer.ends === "close") socket.end();
    if (answer.ends === "cut") socket.destroySoon();
  }
}

/** A file of a cache with its head, marks or length changed. */
export function spoiled(random: Random, file: Buffer): Buffer {
  let bytes: Buffer = Buffer.from(file);
  const times = 1 + Math.floor(random() * 3);
  for (let time = 0; time < times; time++) bytes = spoil(random, bytes);
  return bytes;
}

const HEAD = 4096;

function spoil(random: Random, bytes: Buffer): Buffer {
  const kind = random();
  if (kind < 0.25) return withHead(random, bytes);
  if (kind < 0.5) {
    // Somewhere among head and marks, or in the data.
    const most = random() < 0.6 ? Math.min(bytes.length, HEAD + 200) : bytes.length;
    for (let count = 1 + random() * 20; count > 0 && most > 0; count--)
      bytes[Math.floor(random() * most)] = Math.floor(random() * 256);
    return bytes;
  }
  if (kind < 0.65) return bytes.subarray(0, Math.floor(random() * bytes.length));
  if (kind < 0.75) return Buffer.concat([bytes, Buffer.alloc(Math.floor(random() * 100_000))]);
  if (kind < 0.85) return bytes.fill(pick(random, [0, 0xff]), Math.floor(random() * bytes.length));
  if (kind < 0.95) return bytes.fill(0, 0, Math.min(bytes.length, Math.floor(random() * HEAD)));
  return anyBytes(random, Math.floor(random() * 20_000));
}

/** Its JSON with one value changed, or other JSON. */
function withHead(random: Random, bytes: Buffer): Buffer {
  if (bytes.length < HEAD) return bytes;
  const text = bytes
    .subarray(0, HEAD - 33)
    .toString("utf8")
    .replace(/\0.*$/s, "");
  const values = [
    null,
    true,
    -1,
    0,
    1.5,
    1e6,
    2 ** 40,
    2 ** 47,
    2 ** 53,
    1e300,
    "",
    "x".repeat(2000),
    [],
    {},
    { size: 1 },
  ];
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch {
    json = {};
  }
  const changed =
    random() < 0.8 && typeof json === "object" && json
      ? { ...json, [pick(random, ["format", "url", "size", "validator", "access", "__proto__"])]: pick(random, values) }
      : pick(random, [...values, JSON.parse(`${"[".repeat(1000)}${"]".repeat(1000)}`)]);
  const head = Buffer.alloc(HEAD - 33);
  head.write(random() < 0.9 ? JSON.stringify(changed) : `${JSON.stringify(changed)}}`);
  head.copy(bytes);
  return bytes;
}
