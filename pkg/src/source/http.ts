import { EngineError } from "../errors.ts";
import { BlobSource } from "./blob.ts";
import { cutShort, type ReadOptions, type Source } from "./source.ts";
import type { FileSpec } from "./spec.ts";

type UrlSpec = Extract<FileSpec, { kind: "url" }>;

/** Of the first request: most headers of models are smaller. */
const FIRST = 256 << 10;

/** Times that one place of a file may fail in a row … */
const TRIES = 4;
/** … and what must have come in between for a failure to count as a new one. */
const PROGRESS = 64 << 10;

/** A file on a server that answers ranges. */
export class HttpSource implements Source {
  readonly name: string;
  readonly size: number;
  readonly #spec: UrlSpec;
  /** The file's first bytes, which came with its size. */
  readonly #first: Uint8Array;
  /** Of the file as it was then, where the server tells. */
  readonly #etag: string | null;

  private constructor(spec: UrlSpec, size: number, first: Uint8Array, etag: string | null) {
    this.name = shown(spec.url);
    this.size = size;
    this.#spec = spec;
    this.#first = first;
    this.#etag = etag;
  }

  /** Asks for the beginning of the file. A server without ranges sends all of it, and that is kept. */
  static async open(spec: UrlSpec, signal?: AbortSignal): Promise<Source> {
    const response = await request(spec, { range: [0, FIRST] }, signal);
    const page = /^text\/html/i.test(response.headers.get("content-type") ?? "");
    if (response.status !== 206) {
      // Out of an empty file there is no range.
      const blob = response.status === 416 ? new Blob([]) : await network(spec, () => response.blob());
      if (page) refusePage(spec, await blob.slice(0, 64).text());
      return new BlobSource(blob, shown(spec.url));
    }
    const first = await arrived(response, FIRST);
    if (page) refusePage(spec, new TextDecoder().decode(first.subarray(0, 64)));
    const size = total(spec, response, 0) ?? (await askSize(spec, signal));
    return new HttpSource(spec, size, first.subarray(0, size), response.headers.get("etag"));
  }

  async read(offset: number, length: number, options: ReadOptions = {}): Promise<Uint8Array> {
    const bytes = new Uint8Array(length);
    let at = 0;
    for await (const piece of this.stream(offset, length, options)) {
      bytes.set(piece, at);
      at += piece.length;
    }
    return bytes;
  }

  /** A connection that drops is taken up again at the byte that it reached. */
  async *stream(offset: number, length: number, { signal }: ReadOptions = {}): AsyncIterable<Uint8Array> {
    const known = this.#first.subarray(offset, offset + length);
    if (known.length > 0) yield known;
    let at = known.length;
    let [failures, mark] = [0, at];
    while (at < length) {
      let dropped: unknown = null;
      try {
        for await (const piece of this.#range(offset + at, length - at, signal)) {
          at += piece.length;
          yield piece;
        }
        if (at < length) dropped = cutShort(this.name, offset, length, at);
      } catch (error) {
        if (signal?.aborted || !mayPass(error)) throw error;
        dropped = error;
      }
      if (!dropped) continue;
      failures = at - mark < PROGRESS ? failures + 1 : 1;
      mark = at;
      if (failures === TRIES) throw dropped;
      await pause(50 * 4 ** failures, signal);
    }
  }

  async close(): Promise<void> {}

  /** What comes of a range in one request; it may end early. */
  async *#range(offset: number, length: number, signal?: AbortSignal): AsyncIterable<Uint8Array> {
    const response = await request(this.#spec, { range: [offset, length] }, signal);
    const reader = response.body?.getReader();
    try {
      if (response.status !== 206) throw failed(this.#spec, `a range was answered with ${response.status}`, response);
      const size = total(this.#spec, response, offset) ?? this.size;
      const etag = response.headers.get("etag") ?? this.#etag;
      if (size !== this.size || etag !== (this.#etag ?? etag)) {
        throw failed(this.#spec, "the file has changed on the server while it was read", response);
      }
      for (let at = 0; reader; ) {
        const { done, value } = await network(this.#spec, () => reader.read());
        if (done) return;
        at += value.length;
        if (at > length) throw failed(this.#spec, `more than the ${length} bytes asked for came`, response);
        yield value;
      }
    } finally {
      // Whoever stops early must not leave the rest of the file coming.
      await reader?.cancel().catch(() => {});
    }
  }
}

interface Ask {
  method?: string;
  /** Offset and length. */
  range?: [number, number];
}

async function request(spec: UrlSpec, { method, range }: Ask, signal?: AbortSignal): Promise<Response> {
  const headers = new Headers(spec.headers);
  if (range) headers.set("range", `bytes=${range[0]}-${range[0] + range[1] - 1}`);
  const { credentials } = spec;
  const init = { headers, ...(method && { method }), ...(credentials && { credentials }), ...(signal && { signal }) };
  const response = await network(spec, () => fetch(spec.url, init));
  if (response.ok || (response.status === 416 && range?.[0] === 0)) return response;
  await response.body?.cancel().catch(() => {});
  const { status, statusText } = response;
  const code = status === 404 || status === 410 ? "NotFound" : "Network";
  throw failed(spec, `the server answered ${status} ${statusText}`.trim(), response, code);
}

/** The size of the file from a partial response, which must begin where it was asked to; null where it is not shown. */
function total(spec: UrlSpec, response: Response, offset: number): number | null {
  const shown = response.headers.get("content-range");
  if (shown === null) return null;
  const [, from, size] = /^bytes (\d+)-\d+\/(\d+|\*)$/.exec(shown) ?? [];
  if (Number(from) !== offset) throw failed(spec, `asked for byte ${offset}, the server sent ${shown}`, response);
  return Number.isSafeInteger(Number(size)) ? Number(size) : null;
}

/** Servers of other origins show `Content-Range` only if they are told to; a length always. */
async function askSize(spec: UrlSpec, signal?: AbortSignal): Promise<number> {
  const response = await request(spec, { method: "HEAD" }, signal);
  const size = Number(response.headers.get("content-length") ?? Number.NaN);
  if (Number.isSafeInteger(size)) return size;
  throw failed(spec, "the server does not tell how long the file is (Content-Range)", response);
}

/** What arrives of a response: where its connection drops, the rest is asked for when it is needed. */
async function arrived(response: Response, most: number): Promise<Uint8Array> {
  const bytes = new Uint8Array(most);
  const reader = response.body?.getReader();
  let at = 0;
  // Up to its end, where it is no longer than asked for: an answer that is cut off looks like a failure to those who watch.
  while (reader && at <= most) {
    const { done, value } = await reader.read().catch((error) => {
      if (isAbort(error)) throw error;
      return { done: true, value: undefined };
    });
    if (done || !value) break;
    bytes.set(value.subarray(0, most - at), Math.min(at, most));
    at += value.length;
  }
  await reader?.cancel().catch(() => {});
  return bytes.subarray(0, at);
}

/** Servers of single-page apps answer any address with their page: to them the file is not there. */
function refusePage(spec: UrlSpec, start: string): void {
  if (!start.trimStart().startsWith("<")) return;
  const file = shown(spec.url);
  const reason = "the server sent a web page (text/html) instead of the file";
  throw new EngineError("NotFound", `${file}: ${reason}`, { file, found: "text/html" });
}

/** Failures of the network as errors of ours; an abort stays what it is. */
async function network<T>(spec: UrlSpec, get: () => Promise<T>): Promise<T> {
  try {
    return await get();
  } catch (error) {
    if (isAbort(error)) throw error;
    // Node says "terminated", and why beneath.
    const { message, cause } = error as Error;
    const file = shown(spec.url);
    const why = cause instanceof Error && cause.message ? `${message} (${cause.message})` : message;
    throw new EngineError("Network", `${file}: ${why}`, { file }, { cause: error });
  }
}

const isAbort = (error: unknown) => error instanceof DOMException && error.name === "AbortError";

/** A dropped connection, or a server that is too busy now. */
function mayPass(error: unknown): boolean {
  if (!(error instanceof EngineError) || error.code !== "Network") return false;
  const { status } = error.detail;
  return status === undefined || status === 429 || (typeof status === "number" && status >= 500);
}

function failed(spec: UrlSpec, reason: string, { status }: Response, code = "Network"): EngineError {
  const file = shown(spec.url);
  return new EngineError(code, `${file}: ${reason}`, { file, status });
}

function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const abort = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", abort);
      resolve();
    }, ms);
    signal?.addEventListener("abort", abort, { once: true });
  });
}

/** Without what may be secret: user, password and query. */
function shown(address: string): string {
  const url = new URL(address);
  if (url.protocol === "data:" || url.protocol === "blob:") return url.protocol;
  return `${url.origin === "null" ? `${url.protocol}//` : url.origin}${url.pathname}`;
}
