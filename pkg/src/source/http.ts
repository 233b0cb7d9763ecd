import { EngineError } from "../errors.ts";
import { BlobSource } from "./blob.ts";
import { cutShort, type ReadOptions, type Source } from "./source.ts";
import type { FileSpec } from "./spec.ts";

type UrlSpec = Extract<FileSpec, { kind: "url" }>;

/** Of the first request: most headers of models are smaller. */
const FIRST = 256 << 10;

/** A file on a server that answers ranges. */
export class HttpSource implements Source {
  readonly name: string;
  readonly size: number;
  readonly #spec: UrlSpec;
  /** The file's first bytes, which came with its size. */
  readonly #first: Uint8Array;

  private constructor(spec: UrlSpec, size: number, first: Uint8Array) {
    this.name = shown(spec.url);
    this.#spec = spec;
    this.size = size;
    this.#first = first;
  }

  /** Asks for the beginning of the file. A server without ranges sends all of it, and that is kept. */
  static async open(spec: UrlSpec, signal?: AbortSignal): Promise<Source> {
    const response = await request(spec, 0, FIRST, signal);
    if (response.status === 200) {
      return new BlobSource(await body(spec, () => response.blob()), shown(spec.url));
    }
    const total = Number(/\/(\d+)$/.exec(response.headers.get("content-range") ?? "")?.[1]);
    if (!Number.isSafeInteger(total)) {
      throw network(spec, "the server answered a range without the file's size (Content-Range)");
    }
    const first = await body(spec, () => response.arrayBuffer());
    return new HttpSource(spec, total, new Uint8Array(first).subarray(0, total));
  }

  async read(offset: number, length: number, options: ReadOptions = {}): Promise<Uint8Array> {
    if (offset + length <= this.#first.length) return this.#first.subarray(offset, offset + length);
    const bytes = new Uint8Array(length);
    let at = 0;
    for await (const piece of this.stream(offset, length, options)) {
      bytes.set(piece, at);
      at += piece.length;
    }
    return bytes;
  }

  async *stream(offset: number, length: number, { signal }: ReadOptions = {}): AsyncIterable<Uint8Array> {
    if (length === 0) return;
    const response = await request(this.#spec, offset, length, signal);
    if (response.status !== 206)
      throw network(this.#spec, `the server answered a range with status ${response.status}`);
    const reader = response.body?.getReader();
    if (!reader) throw network(this.#spec, "the server answered without a body");
    let at = 0;
    try {
      for (;;) {
        const { done, value } = await body(this.#spec, () => reader.read());
        if (done) break;
        at += value.length;
        if (at > length) throw cutShort(this.name, offset, length, at);
        yield value;
      }
      if (at < length) throw cutShort(this.name, offset, length, at);
    } finally {
      // Whoever stops early must not leave the rest of the file coming.
      await reader.cancel().catch(() => {});
    }
  }

  async close(): Promise<void> {}
}

async function request(spec: UrlSpec, offset: number, length: number, signal?: AbortSignal): Promise<Response> {
  const headers = new Headers(spec.headers);
  headers.set("range", `bytes=${offset}-${offset + length - 1}`);
  const { credentials } = spec;
  const init = { headers, ...(credentials ? { credentials } : {}), ...(signal ? { signal } : {}) };
  const response = await body(spec, () => fetch(spec.url, init));
  if (response.ok) return response;
  await response.body?.cancel().catch(() => {});
  const file = shown(spec.url);
  const code = response.status === 404 || response.status === 410 ? "NotFound" : "Network";
  throw new EngineError(code, `${file}: the server answered ${response.status} ${response.statusText}`.trim(), {
    file,
    status: response.status,
  });
}

/** Failures of the network as errors of ours; an abort stays what it is. */
async function body<T>(spec: UrlSpec, get: () => Promise<T>): Promise<T> {
  try {
    return await get();
  } catch (cause) {
    if (cause instanceof DOMException && cause.name === "AbortError") throw cause;
    throw network(spec, (cause as Error).message, cause);
  }
}

function network(spec: UrlSpec, reason: string, cause?: unknown): EngineError {
  const file = shown(spec.url);
  return new EngineError("Network", `${file}: ${reason}`, { file }, { cause });
}

/** Without what may be secret: user, password and query. */
function shown(address: string): string {
  const url = new URL(address);
  if (url.protocol === "data:" || url.protocol === "blob:") return url.protocol;
  return `${url.origin === "null" ? `${url.protocol}//` : url.origin}${url.pathname}`;
}
