import { createHash } from "node:crypto";
import type { Model } from "../types/index.ts";
import { loadAdapters, scaled } from "./adapters.ts";
import { percent, table } from "./format.ts";
import { loadOptions, withModel } from "./model.ts";
import { UsageError } from "./syntax.ts";
import type { Terminal } from "./terminal.ts";
import type { Command } from "./usage.ts";

/** How many of the most likely tokens the table shows. */
const SHOWN = 10;

export const logits: Command = {
  name: "logits",
  async run(args, terminal) {
    const ids = args.ids();
    if (!ids) throw new UsageError("--ids 1,2,3 is missing", { option: "--ids" });
    const all = args.has("all");
    scaled(args);
    const load = loadOptions(args, ["loading"]);
    await withModel(args, terminal, load, async (model) => {
      const adapters = await loadAdapters(args, load, model, terminal);
      const rows = await model.logits(ids, { all, ...adapters, signal: terminal.signal });
      const sum = sha256(rows);
      if (terminal.json) await printJson(model.info.vocab, rows, sum, terminal);
      else {
        const shown = all ? await everyPosition(model, ids, rows) : await likeliest(model, rows[0]!);
        await terminal.print(`${shown}\n\n  sha256 of ${rows.length} × ${model.info.vocab} f32: ${sum}\n`);
      }
    });
  },
};

/** The hash of the rows as little-endian f32, which is the byte order of wasm. */
function sha256(rows: readonly Float32Array[]): string {
  const hash = createHash("sha256");
  for (const { buffer, byteOffset, byteLength } of rows) hash.update(new Uint8Array(buffer, byteOffset, byteLength));
  return hash.digest("hex");
}

/** Prints row by row, because all rows together may exceed the longest string. The shortest form of a number gives back the same f32. */
async function printJson(vocab: number, rows: readonly Float32Array[], sum: string, terminal: Terminal): Promise<void> {
  await terminal.print(`{"vocab":${vocab},"positions":${rows.length},"logits":[`);
  for (const [i, row] of rows.entries()) await terminal.print(`${i > 0 ? "," : ""}[${row.join(",")}]`);
  await terminal.print(`],"sha256":"${sum}"}\n`);
}

async function likeliest(model: Model, row: Float32Array): Promise<string> {
  const best = top(row, SHOWN);
  const sum = row.reduce((sum, value) => sum + Math.exp(value - row[best[0]!]!), 0);
  const lines = await Promise.all(
    best.map(async (id) => {
      const probability = Math.exp(row[id]! - row[best[0]!]!) / sum;
      return [String(id), row[id]!.toFixed(4), percent(probability), await word(model, id)];
    }),
  );
  return table("rrrl", [["id", "logit", "probability", "token"], ...lines]);
}

async function everyPosition(model: Model, ids: readonly number[], rows: readonly Float32Array[]): Promise<string> {
  const lines = await Promise.all(
    rows.map(async (row, position) => {
      const [best, second] = top(row, 2) as [number, number];
      const margin = (row[best]! - row[second]!).toFixed(4);
      const next = [String(best), row[best]!.toFixed(4), margin, await word(model, best)];
      return [String(position), String(ids[position]), ...next];
    }),
  );
  return table("rrrrrl", [["position", "id", "next", "logit", "margin", "token"], ...lines]);
}

function top(row: Float32Array, count: number): number[] {
  const best: number[] = [];
  for (const [id, value] of row.entries()) {
    const at = best.findIndex((other) => row[other]! < value);
    if (at >= 0) best.splice(at, 0, id);
    else if (best.length < count) best.push(id);
    best.length = Math.min(best.length, count);
  }
  return best;
}

async function word(model: Model, id: number): Promise<string> {
  return model.info.tokenizer ? JSON.stringify(await model.detokenize([id])) : "";
}
