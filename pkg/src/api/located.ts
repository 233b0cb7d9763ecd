/** Errors of Node, Deno and Bun that show first where the caller's program made the call, and then where the engine failed. */

import { EngineError } from "../types/errors.ts";
import { GenerationStream } from "./generation.ts";

// A bundler may have called it otherwise.
Object.defineProperty(EngineError, "name", { value: "EngineError" });

/** The stacks of errors as they were made. */
const made = new WeakMap<EngineError, string>();

const frames = (stack = "") => stack.slice(stack.search(/^ +at /m));

function locate(error: unknown, origin: { stack?: string }): unknown {
  if (!(error instanceof EngineError) || !origin.stack) return error;
  const inner = made.get(error) ?? error.stack ?? "";
  made.set(error, inner);
  // Behind the first function of this kind it is the caller's program again.
  const [within = ""] = frames(inner).split(/^ +at .*\bhere\b.*\n/m);
  error.stack = `${error.name}: ${error.message}\n${frames(origin.stack)}\n    --- in the engine ---\n${within.trimEnd()}`;
  return error;
}

/** The same function, whose errors lead to its caller. */
export function located<F extends (...args: never[]) => unknown>(call: F): F {
  function here(this: unknown, ...args: Parameters<F>): unknown {
    const origin: { stack?: string } = {};
    Error.captureStackTrace?.(origin, here);
    const fail = (error: unknown) => {
      throw locate(error, origin);
    };
    try {
      const result = call.apply(this, args);
      if (result instanceof GenerationStream) GenerationStream.end(result).catch((error) => locate(error, origin));
      return result instanceof Promise ? result.catch(fail) : result;
    } catch (error) {
      // Nothing of the engine is involved: the stack may begin at the caller, and runtimes show that line.
      if (error instanceof EngineError) Error.captureStackTrace?.(error, here);
      throw error;
    }
  }
  return here as unknown as F;
}

/** Does this for all methods of a class. */
export function locateMethods(prototype: object): void {
  for (const [name, { value, ...how }] of Object.entries(Object.getOwnPropertyDescriptors(prototype))) {
    if (typeof value !== "function" || name === "constructor") continue;
    Object.defineProperty(prototype, name, { ...how, value: located(value) });
  }
}
