/** What several test files check alike. */

import assert from "node:assert/strict";
import type { Tokenizer } from "../../../src/text/tokenizer.ts";
import { EngineError } from "../../../src/types/errors.ts";
import type { GoldenString } from "./golden.ts";

/** Every failing string is shown, not the first alone. */
export function checkGolden(tokenizer: Tokenizer, strings: readonly GoldenString[]): void {
  const wrong: unknown[] = [];
  for (const { text, ids, ids_with_special, decoded } of strings) {
    const plain = tokenizer.encode(text, { addSpecial: false });
    const special = tokenizer.encode(text);
    const back = tokenizer.decode(ids);
    if (!same(plain, ids)) wrong.push({ text, expected: ids, got: plain });
    if (!same(special, ids_with_special ?? ids)) wrong.push({ text, expected: ids_with_special, got: special });
    if (back !== decoded) wrong.push({ ids, expected: decoded, got: back });
  }
  assert.equal(strings.length, 200);
  assert.deepEqual(wrong, []);
}

function same(a: readonly number[], b: readonly number[]): boolean {
  return a.length === b.length && a.every((id, i) => id === b[i]);
}

/** Runs what must fail, and returns the typed error. */
export function failure(run: () => unknown): EngineError {
  let result: unknown;
  try {
    result = run();
  } catch (error) {
    assert.ok(error instanceof EngineError, `not a typed error: ${(error as Error).stack}`);
    return error;
  }
  assert.fail(`it did not fail but gave ${JSON.stringify(result)}`);
}

/** Begins to measure: what it returns gives the milliseconds of the processor's time since. The clock on the wall counts other programs too. */
export function stopwatch(): () => number {
  const begun = process.cpuUsage();
  return () => {
    const { user, system } = process.cpuUsage(begun);
    return (user + system) / 1000;
  };
}
