/** Takes a file out of a multipart form, piece by piece: what is in memory does not grow with the file. */

import { open, rm } from "node:fs/promises";
import { make } from "multipasta";
import { ApiError, invalid } from "../openai/errors.ts";
import { EngineError } from "../types/errors.ts";

/** Bytes of a form beside its file. */
const OVERHEAD = 65_536;
const MAX_PARTS = 16;
const MAX_FIELD = 4096;
const MAX_NAME = 255;
/** Bytes that are still read of a form that is refused. */
const MAX_UNUSED = 64 * 2 ** 20;
/** A form of which nothing comes for so long is given up. */
const SILENCE_MS = 30_000;

export interface Uploaded {
  bytes: number;
  /** As the client calls it; never a path here. */
  filename: string;
}

/** Writes the file of a form. @param path of a new file, which is gone again where the form is wrong */
export async function receive(request: Request, path: string, maxBytes: number): Promise<Uploaded> {
  const type = request.headers.get("content-type") ?? "";
  if (!/^multipart\/form-data\s*;/i.test(type)) {
    const found = type.slice(0, 100) || "without a type";
    throw new ApiError(415, `the body must be multipart/form-data with a boundary, not ${found}`);
  }
  const form = new Form(type, maxBytes);
  const announced = Number(request.headers.get("content-length") ?? 0);
  let fault = announced > maxBytes + OVERHEAD ? tooLarge(maxBytes) : null;
  let unused = 0;
  const file = await open(path, "wx").catch(stored);
  try {
    for await (const piece of piecesOf(request)) {
      fault ??= form.take(piece);
      if (fault) {
        // A client that is cut off while it sends reads no answer.
        unused += piece.length;
        if (unused > MAX_UNUSED) break;
        continue;
      }
      for (const bytes of form.ready()) {
        for (let at = 0; at < bytes.length; ) at += (await file.write(bytes, at).catch(stored)).bytesWritten;
      }
    }
    if (fault) throw fault;
    const uploaded = form.end();
    await file.sync().catch(stored);
    await file.close();
    return uploaded;
  } catch (error) {
    await file.close().catch(() => {});
    await rm(path, { force: true });
    throw error;
  }
}

const tooLarge = (maxBytes: number) =>
  new ApiError(413, `a file may have ${maxBytes} bytes`, {
    param: "file",
    code: "file_too_large",
    headers: { connection: "close" },
  });

/** What a client hears of a disk that is full, or fails: the system's own code, and no path. */
export function notStored(what: "file" | "batch", error: unknown): ApiError {
  const cause = error instanceof EngineError ? error.cause : error;
  const { code = "unknown" } = (cause ?? {}) as NodeJS.ErrnoException;
  return new ApiError(507, `the ${what} cannot be stored: ${code}`, { code: "storage_failed" });
}

function stored(cause: unknown): never {
  throw notStored("file", cause);
}

async function* piecesOf(request: Request): AsyncGenerator<Uint8Array, undefined> {
  const reader = request.body?.getReader();
  if (!reader) return;
  let whole = false;
  try {
    for (;;) {
      const { done, value } = await inTime(reader.read());
      whole = done;
      if (done) return;
      yield value;
    }
  } catch (error) {
    throw error instanceof ApiError ? error : invalid(null, "the body broke off");
  } finally {
    if (!whole) void reader.cancel().catch(() => {});
  }
}

async function inTime<T>(read: Promise<T>): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    const error = new ApiError(408, "the body did not come in time", { headers: { connection: "close" } });
    timer = setTimeout(() => reject(error), SILENCE_MS);
  });
  try {
    return await Promise.race([read, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** A form with the fields `file` and `purpose`, in any order. */
class Form {
  readonly #parser: ReturnType<typeof make>;
  readonly #maxBytes: number;
  #ready: Uint8Array[] = [];
  #fault: ApiError | null = null;
  #whole = false;
  #purpose: string | null = null;
  #name: string | null = null;
  #bytes = 0;

  constructor(type: string, maxBytes: number) {
    this.#maxBytes = maxBytes;
    this.#parser = make({
      headers: { "content-type": type },
      maxParts: MAX_PARTS,
      maxFieldSize: MAX_FIELD,
      onField: ({ name }, value) => this.#field(name, new TextDecoder().decode(value)),
      onFile: ({ name, filename }) => this.#file(name, filename),
      onError: ({ _tag: tag, ...more }) => {
        this.#fault ??= invalid(null, `the form is wrong: ${"limit" in more ? more.limit : tag}`, "invalid_form");
      },
      onDone: () => {
        this.#whole = true;
      },
    });
  }

  /** @returns what is wrong */
  take(piece: Uint8Array): ApiError | null {
    try {
      this.#parser.write(piece);
    } catch {
      // A name whose percent signs stand for no UTF-8.
      this.#fault ??= invalid(null, "the form is wrong: BadHeaders", "invalid_form");
    }
    return this.#fault;
  }

  /** Bytes of the file that have come. */
  ready(): Uint8Array[] {
    return this.#ready.splice(0);
  }

  end(): Uploaded {
    if (!this.#whole) throw invalid(null, "the form is wrong: its last boundary is missing", "invalid_form");
    if (this.#name === null) throw invalid("file", "file is missing", "missing_required_parameter");
    if (this.#purpose === null) throw invalid("purpose", "purpose is missing", "missing_required_parameter");
    if (this.#purpose !== "batch") {
      const found = JSON.stringify(this.#purpose.slice(0, 60));
      throw invalid("purpose", `purpose must be "batch", not ${found}`);
    }
    if (this.#bytes === 0) throw invalid("file", "the file is empty", "empty_file");
    return { bytes: this.#bytes, filename: this.#name };
  }

  #field(name: string, value: string): void {
    if (name === "purpose") this.#purpose = value;
    else if (name.startsWith("expires_after")) {
      this.#fault ??= invalid("expires_after", "files stay until they are deleted: leave expires_after out");
    }
  }

  #file(field: string, filename = "file"): (bytes: Uint8Array | null) => void {
    if (field !== "file" || this.#name !== null) {
      this.#fault ??= invalid("file", "the form must have one file, in the field file", "invalid_form");
    }
    this.#name = filename.replace(/\p{Cc}/gu, "").slice(0, MAX_NAME);
    return (bytes) => {
      if (bytes === null) return;
      this.#bytes += bytes.length;
      if (this.#bytes > this.#maxBytes) this.#fault ??= tooLarge(this.#maxBytes);
      else this.#ready.push(bytes);
    };
  }
}
