/** Greedy continuations that other implementations computed, followed through the command line. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { json, path } from "./ternlight.ts";

// biome-ignore lint/suspicious/noExplicitAny: what a golden file holds is checked by the tests that read it
export const golden = (name: string): any => JSON.parse(readFileSync(path(`tests/golden/${name}`), "utf8"));

/** The real model of the golden set, which comes from its registry once and is no part of the repository. */
export const smollm2 = (): string => execFileSync(path("scripts/smollm2.sh"), { encoding: "utf8" }).trim();

/** The ids and logits of some of the likeliest tokens behind a prompt. */
export interface Top {
  ids: readonly number[];
  logits: readonly number[];
}

/** The largest distance of our logits from the expected ones. */
export async function farthest(
  model: string,
  prompt: readonly number[],
  top: Top,
  ...flags: string[]
): Promise<number> {
  const row = (await json("logits", model, "--ids", prompt.join(), ...flags)).logits[0];
  return Math.max(...top.ids.map((id, i) => Math.abs(row[id] - top.logits[i]!)));
}

/**
 * Follows a greedy continuation. Where ours leaves it, both tokens must be nearly as likely: their logits may differ by at
 * most `tie`, which is what two right implementations differ by. Answers how many steps agreed.
 */
export async function follow(
  model: string,
  prompt: readonly number[],
  expected: readonly number[],
  tie: number,
): Promise<number> {
  const count = String(expected.length);
  const args = ["--ids", prompt.join(), "-n", count, "--temp", "0", "--ignore-eos", "--threads", "1"];
  const { tokens } = await json("run", model, ...args);
  const parting = expected.findIndex((id, step) => tokens[step] !== id);
  if (parting < 0) return expected.length;
  const before = [...prompt, ...expected.slice(0, parting)];
  const row = (await json("logits", model, "--ids", before.join())).logits[0];
  const margin = row[tokens[parting]] - row[expected[parting]!];
  assert.ok(margin <= tie, `step ${parting} takes ${tokens[parting]} and not ${expected[parting]}, ahead by ${margin}`);
  return parting;
}
