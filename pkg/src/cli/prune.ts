import { createHash } from "node:crypto";
import { readFile, rm, writeFile } from "node:fs/promises";
import { prune as cut } from "../node-quality.ts";
import { pruneFlags as rows } from "../options/table/quality.ts";
import { memoText, readMemo } from "../quality/memo.ts";
import { prunePicture } from "../quality/picture.ts";
import type { PruneBy, Pruned } from "../quality/types.ts";
import { shownSource } from "../source/address.ts";
import { EngineError } from "../types/errors.ts";
import { readText } from "./file.ts";
import { bytes, table } from "./format.ts";
import { loadOptions } from "./model.ts";
import { UsageError } from "./syntax.ts";
import { outputOf, withGguf, writeNew } from "./tools.ts";
import type { Command } from "./usage.ts";

interface Flags {
  calibrationData?: string;
  targetLayers?: number;
  by?: PruneBy;
  calibrationTokens?: number;
  plot?: string;
  force?: boolean;
}

export const prune: Command = {
  name: "prune",
  async run(args, terminal) {
    const load = loadOptions(args);
    const flags = args.own<Flags>("pruneFlags");
    const { calibrationData, targetLayers, by = rows.by.default, plot, force = false } = flags;
    const missing = (flag: string) => new UsageError(`${flag} is missing`, { option: flag.split(" ")[0]! });
    if (calibrationData === undefined) throw missing("--calibration-data F");
    if (targetLayers === undefined) throw missing("--target-layers N");
    const out = await outputOf(args, force);
    const data = await readText(calibrationData);
    const texts = textsOf(data, calibrationData);
    const tokens = flags.calibrationTokens ?? rows.calibrationTokens.default;
    const { signal } = terminal;
    await withGguf(args, terminal, async (model) => {
      // A run that was interrupted left here what it had measured.
      const kept = `${out}.partial`;
      const about = createHash("sha256")
        .update(JSON.stringify([args.operands[0], by, tokens, data]))
        .digest("hex");
      const memo = readMemo(await readFile(kept, "utf8").catch(() => ""), about);
      let saved = memo.size;
      const onProgress = (what: string, share: number) => {
        terminal.passing(`trying layers ${what}  ${Math.round(100 * share)} %`);
        if (memo.size === saved) return;
        saved = memo.size;
        void writeFile(kept, memoText(memo, about)).catch(() => {});
      };
      const pruned = await cut(model, {
        targetLayers,
        texts,
        by: by as PruneBy,
        tokens,
        load,
        memo,
        signal,
        onProgress,
      });
      terminal.passing("");
      await writeNew(out, force, pruned.file, terminal);
      await rm(kept, { force: true });
      if (plot) await writeFile(plot, prunePicture(pruned, `Layers of ${shownSource(args.operands[0]!)}`));
      const { file, ...rest } = pruned;
      if (terminal.json) await terminal.printJson({ file: out, ...rest });
      else await terminal.print(`${report(out, pruned)}\n`);
    });
  },
};

function report(out: string, { before, kept, curve, knee, bytesBefore, bytesAfter, by }: Pruned): string {
  const lines = curve.map(({ layers, dropped, perplexity }) => [
    String(layers),
    dropped === null ? "" : String(dropped),
    perplexity.toFixed(4),
    layers === knee ? "knee" : "",
  ]);
  return [
    `${out}: ${kept.length} of ${before} layers (${kept.join(" ")}), ${bytes(bytesAfter)} of ${bytes(bytesBefore)}`,
    `perplexity of the held-out text, by ${by}:`,
    table("rrrl", [["layers", "dropped", "perplexity", ""], ...lines]),
  ].join("\n");
}

/** Lines of JSON for a file of that name; any other file is one text. */
function textsOf(data: string, file: string): string[] {
  if (!/\.(jsonl|ndjson)$/i.test(file)) return [data];
  const lines = data.split(/\r?\n/);
  const texts = lines.flatMap((line, at) => {
    if (line.trim() === "") return [];
    let value: unknown;
    try {
      value = JSON.parse(line);
    } catch (cause) {
      const reason = `${file}, line ${at + 1} is not JSON: ${(cause as Error).message}`;
      throw new EngineError("BadValue", reason, { file }, { cause });
    }
    const text = typeof value === "string" ? value : (value as { text?: unknown } | null)?.text;
    if (typeof text === "string" && text !== "") return [text];
    const expected = "a JSON text or an object with a text";
    throw new EngineError("BadValue", `${file}, line ${at + 1}: expected ${expected}`, { file, expected });
  });
  if (texts.length === 0) throw new EngineError("BadValue", `${file} holds no text`, { file });
  return texts;
}
