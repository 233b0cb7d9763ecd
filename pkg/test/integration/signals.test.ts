/** A signal of two, also where the runtime cannot join them itself. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { eitherSignal } from "ternlight/integration";

function joined(): void {
  const [one, other] = [new AbortController(), new AbortController()];
  assert.equal(eitherSignal(one.signal, undefined), one.signal);
  assert.equal(eitherSignal(undefined, other.signal), other.signal);
  const either = eitherSignal(one.signal, other.signal);
  assert.equal(either.aborted, false);
  other.abort("other");
  assert.deepEqual([either.aborted, either.reason], [true, "other"]);
  one.abort("one");
  assert.equal(eitherSignal(one.signal, new AbortController().signal).reason, "one");
}

test("either of two signals aborts", () => joined());

test("the same without AbortSignal.any", () => {
  const { any } = AbortSignal;
  Reflect.deleteProperty(AbortSignal, "any");
  try {
    joined();
  } finally {
    Object.defineProperty(AbortSignal, "any", { value: any, configurable: true, writable: true });
  }
});
