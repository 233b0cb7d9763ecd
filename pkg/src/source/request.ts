/** Requests to servers. Each ends in an answer, in an EngineError, or after a while without either. */

import { EngineError, type ErrorCode } from "../types/errors.ts";
import { credentialsOf, shown, withoutSecrets } from "./address.ts";
import type { FileSpec } from "./spec.ts";

export type UrlSpec = Extract<FileSpec, { kind: "url" }>;

export interface HttpOptions {
  /** Ranges asked for at once. */
  connections?: number;
  /** Bytes a millisecond from which on one is enough. */
  enough?: number;
  /** Milliseconds without a byte after which a connection counts as dropped. */
  patience?: number;
  /** Milliseconds before the first new try; four times as many before each next one. */
  backoff?: number;
}

export interface RequestKind {
  method?: "HEAD";
  /** Offset and length. */
  range?: [number, number];
}

/** Times that one place of a file may fail in a row … */
const TRIES = 4;
/** … and a server that cannot be reached at all. */
const TRIES_TO_REACH = 2;
const PATIENCE = 30_000;
const BACKOFF = 200;
/** Longest wait that a server may ask for, in milliseconds. */
const LONGEST_WAIT = 60_000;

/** Of a body's buffer that is filled again and again. */
const PIECE = 256 << 10;
const IN_BROWSER = "location" in globalThis;

/** An answer under way. Its owner reads to its end, or cancels. */
export interface Answer {
  response: Response;
  /** The next piece of the body, which takes the one before away; null at its end. */
  next(): Promise<Uint8Array | null>;
  cancel(): Promise<void>;
}

export async function request(
  spec: UrlSpec,
  { method, range }: RequestKind,
  { patience = PATIENCE }: HttpOptions,
  signal?: AbortSignal,
): Promise<Answer> {
  signal?.throwIfAborted();
  const stall = new StallTimer(spec, patience, signal);
  const headers = new Headers(spec.headers);
  // Chromium cuts a file of an extension as asked, and calls that the whole file.
  if (range && !/^[\w-]+-extension:/.test(spec.url))
    headers.set("range", `bytes=${range[0]}-${range[0] + range[1] - 1}`);
  // A server that encodes a whole answer announces another length: it encodes none where a range is asked for.
  if (method) headers.set("range", "bytes=0-");
  const { url, authorization } = credentialsOf(spec.url);
  if (authorization) headers.set("authorization", authorization);
  const { credentials } = spec;
  const init: RequestInit = { headers, signal: stall.signal };
  // A browser's own cache would keep everything a second time, and let only one request in at a time. Some of the others
  // refuse the option.
  if (IN_BROWSER) init.cache = "no-store";
  if (method) init.method = method;
  if (credentials) init.credentials = credentials;
  const secret = spec.headers.length > 0 || authorization !== null;
  const response = await stall.within(secret ? fetchAtOrigin(url, init, headers.get("range")) : fetch(url, init));
  const reader = response.body && readerOf(response.body);
  const cancel = async () => {
    stall.release();
    await reader?.cancel().catch(() => {});
  };
  if (response.ok || (response.status === 416 && range?.[0] === 0)) {
    const next = async () => {
      const piece = reader ? await stall.within(reader.read()) : null;
      if (!piece) stall.release();
      return piece;
    };
    return { response, next, cancel };
  }
  await cancel();
  const { status, statusText } = response;
  const code = status === 404 || status === 410 ? "NotFound" : "Network";
  throw failed(spec, `the server answered ${status} ${statusText}`.trim(), response, code);
}

/** Requests that are under way. */
const underWay = new Set<StallTimer>();

/** Ends all requests as if their connections had dropped: the runtime has lost one, and does not say which. */
export function dropConnections(): void {
  for (const request of underWay) request.drop();
}

/** Aborts a request that brings nothing for a while. One timer serves a request, because its pieces may be small and many. */
class StallTimer {
  readonly #spec: UrlSpec;
  readonly #patience: number;
  readonly #outer: AbortSignal | undefined;
  readonly #control = new AbortController();
  /** When the wait for a piece began; null while nothing is waited for. */
  #since: number | null = null;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(spec: UrlSpec, patience: number, outer: AbortSignal | undefined) {
    this.#spec = spec;
    this.#patience = patience;
    this.#outer = outer;
    outer?.addEventListener("abort", this.#abort);
    underWay.add(this);
  }

  drop(): void {
    this.#control.abort(new Error("the connection was lost"));
  }

  /** Aborted by the caller's signal too. */
  get signal(): AbortSignal {
    return this.#control.signal;
  }

  /** Waits for what the network brings. Its failures are thrown as an EngineError; an abort by the caller stays what it is. */
  async within<T>(work: Promise<T>): Promise<T> {
    this.#since = performance.now();
    this.#timer ??= setTimeout(this.#look, this.#patience);
    try {
      return await work;
    } catch (error) {
      this.release();
      this.#outer?.throwIfAborted();
      if (this.signal.aborted) throw failed(this.#spec, (this.signal.reason as Error).message);
      // Node says "terminated", and why beneath.
      const { message, cause } = error as Error;
      const said = cause instanceof Error && cause.message ? `${message} (${cause.message})` : message;
      throw failed(this.#spec, withoutSecrets(said));
    } finally {
      this.#since = null;
    }
  }

  release(): void {
    underWay.delete(this);
    clearTimeout(this.#timer);
    this.#outer?.removeEventListener("abort", this.#abort);
  }

  readonly #abort = () => this.#control.abort(this.#outer!.reason);

  readonly #look = () => {
    const left = this.#since === null ? null : this.#since + this.#patience - performance.now();
    this.#timer = left !== null && left > 0 ? setTimeout(this.#look, left) : undefined;
    const silence = `nothing came for ${this.#patience / 1000} seconds`;
    if (left !== null && left <= 0) this.#control.abort(new Error(silence));
  };
}

/** Whether this runtime hides where a redirect leads, as pages' do. It is found out at the first one. */
let hidesRedirects = false;
const MAX_REDIRECTS = 20;

/**
 * The answer behind redirects, of which those to another origin are sent none of the caller's headers and no password. A browser
 * follows redirects by its own rule: it drops `Authorization` at another origin, and sends other headers where that origin allows it.
 */
async function fetchAtOrigin(url: URL, init: RequestInit, range: string | null): Promise<Response> {
  let at = url;
  let own = init;
  for (let hops = 0; !hidesRedirects && hops <= MAX_REDIRECTS; hops++) {
    const response = await fetch(at, { ...own, redirect: "manual" });
    if (response.type === "opaqueredirect") hidesRedirects = true;
    const location = response.headers.get("location");
    if (![301, 302, 303, 307, 308].includes(response.status) || location === null) {
      if (hidesRedirects) break;
      return response;
    }
    await response.body?.cancel().catch(() => {});
    const next = new URL(location, at);
    if (!/^https?:$/.test(next.protocol)) throw new Error(`a redirect leads to ${next.protocol}`);
    if (next.origin !== url.origin) own = { ...init, headers: range === null ? {} : { range } };
    at = next;
  }
  if (hidesRedirects) return fetch(url, init);
  throw new Error(`more than ${MAX_REDIRECTS} redirects`);
}

/**
 * Reads a body. What a browser's response brings waits for its garbage collector, which does not see how much that is: there one
 * buffer goes back and forth, where the browser can do that.
 */
function readerOf(body: ReadableStream<Uint8Array>): { read(): Promise<Uint8Array | null>; cancel(): Promise<void> } {
  if (IN_BROWSER) {
    const reader = byobReader(body);
    if (reader) {
      let buffer = new ArrayBuffer(PIECE);
      const read = async () => {
        const { value, done } = await reader.read(new Uint8Array(buffer));
        if (done || !value) return null;
        buffer = value.buffer;
        return value;
      };
      return { read, cancel: () => reader.cancel() };
    }
  }
  const reader = body.getReader();
  let last: Uint8Array<ArrayBuffer> | undefined;
  const read = async () => {
    // Nobody else has a buffer that is one piece: given back at once, it is nothing that a collection must find.
    if (last?.length === last?.buffer.byteLength) last?.buffer.transfer?.(0);
    last = (await reader.read()).value as typeof last;
    return last ?? null;
  };
  return { read, cancel: () => reader.cancel() };
}

/** Null where bodies are no byte streams, as WebKit's are not. */
function byobReader(body: ReadableStream<Uint8Array>): ReadableStreamBYOBReader | null {
  try {
    return body.getReader({ mode: "byob" });
  } catch {
    return null;
  }
}

/** Tries again after what may pass: dropped connections, servers that are too busy now. */
export class RetryPolicy {
  readonly #backoff: number;
  #failures = 0;

  constructor({ backoff = BACKOFF }: HttpOptions) {
    this.#backoff = backoff;
  }

  /** Data came in between: the next failure counts as a first one. */
  progressed(): void {
    this.#failures = 0;
  }

  /** Returns when it is time for another try; throws where there is none. */
  async after(error: unknown, tries: number, signal?: AbortSignal): Promise<void> {
    if (signal?.aborted || !mayPass(error) || ++this.#failures >= tries) throw error;
    const asked = error.detail.retryAfter as number | undefined;
    if (asked !== undefined && asked > LONGEST_WAIT) throw error;
    await pause(asked ?? this.#backoff * 4 ** (this.#failures - 1), signal);
  }

  /** Runs `work` until it succeeds, or no further try is left. */
  async answer<T>(work: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    for (;;) {
      try {
        return await work();
      } catch (error) {
        const reached = error instanceof EngineError && error.detail.status !== undefined;
        await this.after(error, reached ? TRIES : TRIES_TO_REACH, signal);
      }
    }
  }

  /** As `after`, in the middle of a file. */
  again(error: unknown, signal?: AbortSignal): Promise<void> {
    return this.after(error, TRIES, signal);
  }
}

export function mayPass(error: unknown): error is EngineError {
  if (!(error instanceof EngineError) || !["Network", "Truncated"].includes(error.code)) return false;
  const { status } = error.detail;
  return status === undefined || status === 429 || (typeof status === "number" && status >= 500);
}

export function failed(spec: UrlSpec, reason: string, response?: Response, code: ErrorCode = "Network"): EngineError {
  const file = shown(spec.url);
  const wait = response && retryAfter(response);
  // Hugging Face's hub says why in a word.
  const why = response?.headers.get("x-error-code");
  const detail = {
    file,
    ...(response && { status: response.status }),
    ...(wait != null && { retryAfter: wait }),
    ...(why && { reason: why }),
  };
  return new EngineError(code, `${file}: ${reason}`, detail);
}

/** In milliseconds; null where it is not said. */
function retryAfter({ headers }: Response): number | null {
  const said = headers.get("retry-after");
  if (said === null) return null;
  const ms = /^\d+$/.test(said) ? Number(said) * 1000 : Date.parse(said) - Date.now();
  return Number.isNaN(ms) ? null : Math.max(0, ms);
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
