/** Reads the body of a request as JSON: bounded in size, in time and in depth. */

import { ApiError, invalid } from "../openai/errors.ts";

/** Objects and lists within each other: the deepest schemas known have about 20. */
const MAX_DEPTH = 100;
/** A body that is not whole by then is no request. */
const BODY_MS = 30_000;
/** Bytes that are still read of a body that is too large: a client that is cut off while it sends reads no answer. */
const MAX_UNUSED = 64 * 2 ** 20;

/** Bytes from which on a body is read in turn. */
const LONG = 64 * 1024;

const utf8 = new TextDecoder("utf-8", { fatal: true });

let turn: Promise<void> = Promise.resolve();

/** One long body at a time, with a breath between: what else the server is asked, it answers meanwhile. */
function inTurn(): Promise<void> {
  turn = turn.then(() => new Promise((resolve) => setTimeout(resolve)));
  return turn;
}

export interface BodyLimits {
  maxBytes: number;
  /** Milliseconds for all of it. */
  ms?: number;
}

export async function readJson(request: Request, limits: BodyLimits): Promise<unknown> {
  const type = request.headers.get("content-type");
  const encoding = request.headers.get("content-encoding") ?? "identity";
  if (encoding !== "identity")
    throw new ApiError(415, `the body must be sent as it is, not with the content-encoding ${encoding.slice(0, 100)}`);
  // A page of another origin may send other types without asking first; programs name none, or a form's.
  if (request.headers.has("origin") && !/^application\/([\w.+-]+\+)?json\s*(;|$)/i.test(type ?? ""))
    throw new ApiError(415, `the body must be application/json, not ${(type ?? "without a type").slice(0, 100)}`);
  const bytes = await readBytes(request, limits);
  if (bytes.length > LONG) await inTurn();
  let text: string;
  try {
    text = utf8.decode(bytes);
  } catch {
    throw invalid(null, "the body is not UTF-8");
  }
  return parseJson(text);
}

export function parseJson(text: string): unknown {
  if (text.trim() === "") throw invalid(null, "the body is empty: it must be a JSON object");
  if (depthOf(text) > MAX_DEPTH) throw invalid(null, `the body nests more than ${MAX_DEPTH} objects and lists`);
  try {
    return JSON.parse(text);
  } catch (error) {
    throw invalid(null, `the body is not JSON: ${(error as Error).message.slice(0, 200)}`);
  }
}

async function readBytes(request: Request, { maxBytes, ms = BODY_MS }: BodyLimits): Promise<Uint8Array> {
  const length = request.headers.get("content-length");
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(
      () => reject(new ApiError(408, "the body did not come in time", { headers: { connection: "close" } })),
      ms,
    );
  });
  try {
    // What names its length is read in one piece, which servers do without a stream.
    if (length !== null && !(Number(length) > maxBytes))
      return new Uint8Array(await Promise.race([request.arrayBuffer(), late]));
    return await readStream(request, { maxBytes, announced: Number(length ?? 0) }, late);
  } catch (error) {
    throw error instanceof ApiError ? error : invalid(null, "the body broke off");
  } finally {
    clearTimeout(timer);
  }
}

async function readStream(
  { body }: Request,
  { maxBytes, announced }: { maxBytes: number; announced: number },
  late: Promise<never>,
): Promise<Uint8Array> {
  const reader = body?.getReader();
  if (!reader) return new Uint8Array();
  const chunks: Uint8Array[] = [];
  let size = 0;
  let fault = announced > maxBytes ? tooLarge(maxBytes) : null;
  try {
    for (;;) {
      const { done, value } = await Promise.race([reader.read(), late]);
      if (done) break;
      size += value.length;
      if (size > maxBytes) fault ??= tooLarge(maxBytes);
      if (size > maxBytes + MAX_UNUSED) throw fault;
      if (fault) chunks.length = 0;
      else chunks.push(value);
    }
    if (fault) throw fault;
  } catch (error) {
    void reader.cancel().catch(() => {});
    throw fault ?? error;
  }
  const bytes = new Uint8Array(size);
  let at = 0;
  for (const chunk of chunks) {
    bytes.set(chunk, at);
    at += chunk.length;
  }
  return bytes;
}

const tooLarge = (maxBytes: number) =>
  new ApiError(413, `the body may have ${maxBytes} bytes`, {
    code: "body_too_large",
    headers: { connection: "close" },
  });

function depthOf(text: string): number {
  let [depth, most] = [0, 0];
  for (let at = 0; at < text.length; at++) {
    const char = text.charCodeAt(at);
    if (char === 0x22) {
      // To the end of the text.
      for (at++; at < text.length && text.charCodeAt(at) !== 0x22; at++) if (text.charCodeAt(at) === 0x5c) at++;
    } else if (char === 0x7b || char === 0x5b) most = Math.max(most, ++depth);
    else if (char === 0x7d || char === 0x5d) depth--;
  }
  return most;
}
