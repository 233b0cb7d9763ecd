/** What a tool has cost and gained, as tables. */

import { compare as measured } from "../node-quality.ts";
import { comparedPart } from "../quality/compared.ts";
import { PROBE } from "../quality/lint/rope.ts";
import { activationsName } from "../quality/picture.ts";
import type { Compared, MeasuredRow } from "../quality/types.ts";
import type { LoadOptions } from "../types/index.ts";
import { bytes, percent, table } from "./format.ts";
import type { Terminal } from "./terminal.ts";

export interface Told extends Compared {
  /** What it was measured on. */
  text: "held-out" | "built-in";
}

/** On a held-out text; where there is none, or only a few words of it, on the built-in one. */
export async function compare(
  model: string | URL,
  out: string,
  heldOut: string,
  { load, terminal }: { load: LoadOptions; terminal: Terminal },
): Promise<Told> {
  const text = comparedPart(heldOut) === null ? "built-in" : "held-out";
  const { signal } = terminal;
  const onProgress = (share: number) => terminal.passing(`measuring before and after  ${Math.round(100 * share)} %`);
  const compared = await measured(model, out, text === "built-in" ? PROBE : heldOut, { load, signal, onProgress });
  terminal.passing("");
  return { text, ...compared };
}

const HEAD = ["perplexity", "95 %", "KL, nats", "same winner", "prompt/s", "tokens/s", "memory"];

export const intervalOf = ({ interval }: MeasuredRow): string =>
  interval?.map((end) => end.toFixed(2)).join("–") ?? "–";

const cells = (row: MeasuredRow): string[] => [
  row.perplexity.toFixed(4),
  intervalOf(row),
  row.kl?.toExponential(2) ?? "–",
  row.sameWinner === null ? "–" : percent(row.sameWinner),
  row.promptPerSecond.toFixed(1),
  row.predictedPerSecond.toFixed(1),
  bytes(row.memory),
];

export function comparedTable({ text, before, after }: Told): string {
  const rows = [["before", before] as const, ["after", after] as const].map(([name, row]) => [
    name,
    row.bitsPerByte.toFixed(4),
    ...cells(row),
    bytes(row.size),
  ]);
  return `on ${text === "built-in" ? "a built-in" : "the held-out"} text:\n${table("lrrrrrrrrr", [["", "bits/byte", ...HEAD, "size"], ...rows])}`;
}

/** The same of ways to round activations, each with the size of its file. */
export const activationsTable = (rows: readonly MeasuredRow[], sizes: readonly number[]): string =>
  table("lrrrrrrrr", [
    ["activations", ...HEAD, "size"],
    ...rows.map((row, i) => [activationsName(row.activations), ...cells(row), bytes(sizes[i]!)]),
  ]);
