import type { ErrorCode } from "./error_codes.ts";

export type { ErrorCode } from "./error_codes.ts";

/** Where an error occurred. Only the fields that apply are set. */
export interface ErrorDetail {
  file?: string;
  tensor?: string;
  key?: string;
  option?: string;
  /** Byte offset in the file. */
  offset?: number;
  expected?: string;
  found?: string;
  /** Bytes, for OutOfMemory. */
  needed?: number;
  available?: number;
  [key: string]: unknown;
}

/** Every error that ternlight raises by itself. `code` is stable; the message is for people. */
export class EngineError extends Error {
  declare readonly name: "EngineError";
  readonly code: ErrorCode;
  readonly detail: ErrorDetail;

  constructor(code: ErrorCode, message: string, detail: ErrorDetail = {}, options?: { cause?: unknown }) {
    super(message, options);
    this.code = code;
    this.detail = detail;
  }

  static {
    // Before there is an instance: runtimes write the name into the stack when an error is made.
    Object.defineProperty(EngineError.prototype, "name", { value: "EngineError" });
  }

  /** Every entry of the package has its own copy of this class, so an instance is recognised by its name. */
  static override [Symbol.hasInstance](value: unknown): boolean {
    // biome-ignore lint/complexity/noThisInStatic: subclasses are recognised as usual
    if (this !== EngineError) return super[Symbol.hasInstance](value);
    return value instanceof Error && value.name === "EngineError";
  }

  /** The error as data, as it crosses from a worker and as the command line prints it. */
  toJSON(): { code: ErrorCode; message: string; detail: ErrorDetail } {
    return { code: this.code, message: this.message, detail: this.detail };
  }

  /** Turns an error that arrived as data into an instance; anything else is returned unchanged. */
  static revive(value: unknown): unknown {
    if (typeof value !== "object" || value === null || value instanceof Error) return value;
    const { code, message, detail } = value as { code?: unknown; message?: unknown; detail?: unknown };
    if (typeof code !== "string" || typeof message !== "string") return value;
    return new EngineError(code as ErrorCode, message, (detail ?? {}) as ErrorDetail);
  }
}
