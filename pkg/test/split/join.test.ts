/** The engines of a split model as one. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { type Engine, join } from "../../src/split/join.ts";

/** An engine of weights of these kinds, each a number; it measures that a kind is best served by itself. */
function part(kinds: readonly number[], measured: number[][]) {
  const choices = (of: readonly number[]) => Uint8Array.from(of.flatMap((kind) => [kind, kind % 3]));
  const engine = {
    agree: () => true,
    tune(ahead: string, spent: number) {
      if (ahead === "auto") measured.push([...kinds]);
      assert.ok(spent >= 7, "what was measured before counts");
      return choices(kinds);
    },
    recall(known: Uint8Array) {
      const found = new Set(known.filter((_, i) => i % 2 === 0));
      return kinds.every((kind) => found.has(kind)) ? choices(kinds) : undefined;
    },
  };
  return { engine: engine as unknown as Engine, memory: new WebAssembly.Memory({ initial: 1 }) };
}

test("parts with the same kinds of weights measure them once", () => {
  const measured: number[][] = [];
  const [first, ...others] = [[2, 6], [2], [2], [2, 4], [4]].map((kinds) => part(kinds, measured));
  const engine = join([first!, ...others]);
  assert.deepEqual([...engine.tune("auto", 7)], [2, 2, 6, 0, 4, 1]);
  assert.deepEqual(measured, [
    [2, 6],
    [2, 4],
  ]);
});
