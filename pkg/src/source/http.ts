import { EngineError } from "../types/errors.ts";
import { shown } from "./address.ts";
import { inOrder, type Part } from "./ahead.ts";
import { BlobSource } from "./blob.ts";
import { checkSize, decodedLimit, FILE_LIMITS, type FileLimits } from "./limits.ts";
import { type Answer, failed, type HttpOptions, RetryPolicy, request, type UrlSpec } from "./request.ts";
import { encodingOf, lengthOf, rangeOf, validatorOf } from "./response_headers.ts";
import { cutShort, gather, type ReadOptions, type Source } from "./source.ts";

/** Of the first request: most headers of models are smaller. */
const FIRST = 256 << 10;
/** What must have come between two failures for the second to count as a new one. */
const PROGRESS = 64 << 10;
/** Of one of several ranges asked for at once; so much of each may wait for its turn. */
const PART = 4 << 20;
const CONNECTIONS = 4;
/** Bytes a millisecond that one connection brings where others would only get in its way. */
const ENOUGH = 64_000;
/** Of a buffer that collects an answer's pieces, which may be short and many. */
const PIECE = 256 << 10;

/** What a server announces of a file. */
export interface Version {
  /** Null where it does not say. */
  size: number | null;
  /** Its ETag, or when it was last modified; null where it says neither. */
  validator: string | null;
}

/** A file on a server that answers ranges. */
export class HttpSource implements Source {
  readonly name: string;
  readonly size: number;
  readonly #spec: UrlSpec;
  readonly #options: HttpOptions;
  /** The file's first bytes, which came with its size. */
  readonly #first: Uint8Array;
  /** Its validator, of the file as it was then. */
  readonly version: string | null;
  /** Whether the server answers ranges; null while it is not known. */
  #ranges: boolean | null;

  constructor(
    spec: UrlSpec,
    size: number,
    validator: string | null,
    options: HttpOptions,
    first: Uint8Array = new Uint8Array(0),
  ) {
    this.name = shown(spec.url);
    this.size = size;
    this.#spec = spec;
    this.#options = options;
    this.#first = first;
    this.version = validator;
    this.#ranges = first.length > 0 ? true : null;
  }

  /** Asks what there is, and for none of it; once. */
  static async ask(
    spec: UrlSpec,
    options: HttpOptions = {},
    signal?: AbortSignal,
    limits: FileLimits = FILE_LIMITS.weights,
  ): Promise<Version> {
    const { response, cancel } = await request(spec, { method: "HEAD" }, options, signal);
    await cancel();
    const size = total(spec, response, 0) ?? lengthOf(response);
    if (size !== null) checkSize(shown(spec.url), size, limits.size);
    return { size, validator: validatorOf(response) };
  }

  /** Asks for the beginning of the file. A server without ranges sends all of it, and that is kept. */
  static async open(
    spec: UrlSpec,
    options: HttpOptions = {},
    signal?: AbortSignal,
    limits: FileLimits = FILE_LIMITS.weights,
    length = FIRST,
  ): Promise<{ source: Source; validator: string | null }> {
    return new RetryPolicy(options).answer(() => HttpSource.#open(spec, options, limits, length, signal), signal);
  }

  static async #open(
    spec: UrlSpec,
    options: HttpOptions,
    limits: FileLimits,
    length: number,
    signal?: AbortSignal,
  ): Promise<{ source: Source; validator: string | null }> {
    const answer = await request(spec, { range: [0, length] }, options, signal);
    const { response } = answer;
    const validator = validatorOf(response);
    if (response.status !== 206) {
      // An empty file has no ranges.
      if (response.status === 416) await answer.cancel();
      const blob = response.status === 416 ? new Blob() : await wholeOf(spec, answer, limits.whole);
      refusePage(spec, response, new Uint8Array(await blob.slice(0, 64).arrayBuffer()));
      const announced = lengthOf(response) ?? blob.size;
      if (response.status === 200 && announced !== blob.size) {
        throw cutShort(shown(spec.url), 0, announced, blob.size);
      }
      return { source: new BlobSource(blob, shown(spec.url)), validator };
    }
    const first = await arrived(answer, length);
    refusePage(spec, response, first);
    const size = total(spec, response, 0) ?? (await HttpSource.ask(spec, options, signal, limits)).size;
    // Servers of other origins show `Content-Range` only where they are set up to; a length always.
    if (size === null) throw failed(spec, "the server does not tell how long the file is (Content-Range)", response);
    checkSize(shown(spec.url), size, limits.size);
    return { source: new HttpSource(spec, size, validator, options, first.subarray(0, size)), validator };
  }

  read(offset: number, length: number, options: ReadOptions = {}): Promise<Uint8Array> {
    return gather(this.stream(offset, length, options), length);
  }

  async *stream(offset: number, length: number, { signal }: ReadOptions = {}): AsyncIterable<Uint8Array> {
    const known = this.#first.subarray(offset, offset + length);
    if (known.length > 0) yield known;
    const [from, end] = [offset + known.length, offset + length];
    const { connections = CONNECTIONS, enough = ENOUGH } = this.#options;
    let start = from;
    // One request is as good as several for what is short.
    if (connections > 1 && end - from > 2 * PART) {
      // The first part shows what the server can do, and how fast one connection alone is.
      start += PART;
      let [waited, since] = [0, performance.now()];
      for await (const piece of this.#whole({ offset: from, length: PART }, signal)) {
        waited += performance.now() - since;
        yield piece;
        since = performance.now();
      }
      if (this.#ranges && PART / waited < enough) {
        const parts = { offset: start, length: end - start, each: PART };
        return yield* inOrder(parts, connections, (part, signal) => this.#whole(part, signal), signal);
      }
    }
    yield* this.#whole({ offset: start, length: end - start }, signal);
  }

  async close(): Promise<void> {}

  /** A connection that drops is taken up again at the byte that it reached. */
  async *#whole({ offset, length }: Part, signal?: AbortSignal): AsyncIterable<Uint8Array> {
    const retries = new RetryPolicy(this.#options);
    for (let at = 0, mark = 0; at < length; ) {
      try {
        for await (const piece of this.#range(offset + at, length - at, signal)) {
          at += piece.length;
          yield piece;
        }
        if (at < length) throw cutShort(this.name, offset, length, at);
      } catch (error) {
        if (at - mark >= PROGRESS) retries.progressed();
        mark = at;
        await retries.again(error, signal);
      }
    }
  }

  /** What comes of a range in one request; it may end early. */
  async *#range(offset: number, length: number, signal?: AbortSignal): AsyncIterable<Uint8Array> {
    const answer = await request(this.#spec, { range: [offset, length] }, this.#options, signal);
    const { response } = answer;
    try {
      const partial = response.status === 206;
      const size = partial ? total(this.#spec, response, offset) : lengthOf(response);
      // A whole answer without validator and length may be anything.
      const validator = validatorOf(response) ?? (partial || size !== null ? this.version : "");
      if ((size ?? this.size) !== this.size || validator !== (this.version ?? validator)) {
        throw failed(this.#spec, "the file has changed on the server while it was read", response, "SourceChanged");
      }
      this.#ranges = partial;
      // A server without ranges sends the file from its beginning, and goes on after what was asked for.
      let skip = partial ? 0 : offset;
      let left = length;
      let begun = partial;
      for (let piece = await answer.next(); piece; piece = await answer.next()) {
        if (!begun) refusePage(this.#spec, response, piece);
        begun = true;
        const part = piece.subarray(skip, skip + left);
        if (partial && piece.length > left) {
          throw failed(this.#spec, `more than the ${length} bytes asked for came`, response);
        }
        skip = Math.max(0, skip - piece.length);
        left -= part.length;
        if (part.length > 0) yield part;
        if (left === 0 && !partial) return;
      }
    } finally {
      // A reader that stops early must not leave the rest of the file coming.
      await answer.cancel();
    }
  }
}

/** The size of the file from a partial response, which must begin where it was asked to; null where it is not shown. */
function total(spec: UrlSpec, response: Response, offset: number): number | null {
  if (response.status !== 206) return null;
  const encoding = encodingOf(response);
  if (encoding)
    throw failed(spec, `parts of it come encoded (${encoding}): serve it without Content-Encoding`, response);
  const sent = response.headers.get("content-range");
  if (sent === null) return null;
  const range = rangeOf(response);
  if (range?.from !== offset) throw failed(spec, `asked for byte ${offset}, the server sent ${sent}`, response);
  return range.size;
}

/** A whole answer. It ends in an error as soon as more comes than was announced, or than such a file may have. */
async function wholeOf(spec: UrlSpec, answer: Answer, limit: number): Promise<Blob> {
  const file = shown(spec.url);
  const announced = lengthOf(answer.response);
  const onItsWay = answer.response.headers.get("content-length");
  const most = encodingOf(answer.response) ? decodedLimit(limit, onItsWay === null ? null : Number(onItsWay)) : limit;
  const pieces: Uint8Array<ArrayBuffer>[] = [];
  let buffer = new Uint8Array(Math.min(PIECE, announced ?? PIECE));
  let [came, filled] = [0, 0];
  try {
    checkSize(file, announced ?? 0, most);
    for (let piece = await answer.next(); piece; piece = await answer.next()) {
      came += piece.length;
      checkSize(file, came, most);
      if (came > (announced ?? came)) throw cutShort(file, 0, announced!, came);
      for (let done = 0; done < piece.length; ) {
        if (filled === buffer.length) {
          pieces.push(buffer);
          [buffer, filled] = [new Uint8Array(PIECE), 0];
        }
        const part = piece.subarray(done, done + buffer.length - filled);
        buffer.set(part, filled);
        [filled, done] = [filled + part.length, done + part.length];
      }
    }
  } finally {
    await answer.cancel();
  }
  return new Blob([...pieces, buffer.subarray(0, filled)]);
}

/** What arrives of a response: where its connection drops, the rest is asked for when it is needed. */
async function arrived(answer: Answer, most: number): Promise<Uint8Array> {
  const bytes = new Uint8Array(most);
  let at = 0;
  // Up to its end, where it is no longer than asked for: an answer that is cut off looks like a failure to those who watch.
  while (at <= most) {
    const piece = await answer.next().catch((error) => {
      if (error instanceof EngineError) return null;
      throw error;
    });
    if (!piece) break;
    bytes.set(piece.subarray(0, most - at), Math.min(at, most));
    at += piece.length;
  }
  await answer.cancel();
  return bytes.subarray(0, Math.min(at, most));
}

/** Servers of single-page apps answer any address with their page: to them the file is not there. */
function refusePage(spec: UrlSpec, { headers }: Response, start: Uint8Array): void {
  if (!/^text\/html/i.test(headers.get("content-type") ?? "")) return;
  if (!new TextDecoder().decode(start.subarray(0, 64)).trimStart().startsWith("<")) return;
  const file = shown(spec.url);
  const reason = "the server sent a web page (text/html) instead of the file";
  throw new EngineError("NotFound", `${file}: ${reason}`, { file, found: "text/html" });
}
