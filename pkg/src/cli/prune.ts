import { prune as cut } from "../node-quality.ts";
import { pruneFlags as rows } from "../options/table/quality.ts";
import { numberedKey } from "../quality/kept_map.ts";
import { prunePicture } from "../quality/picture.ts";
import { heldOut, wrongKey } from "../quality/prune.ts";
import type { PruneBy, Pruned } from "../quality/types.ts";
import { shownSource } from "../source/address.ts";
import { Memo, textsOf } from "./calibration.ts";
import { compare, comparedTable } from "./compared.ts";
import { readText, writeText } from "./file.ts";
import { bytes, table } from "./format.ts";
import { loadOptions } from "./model.ts";
import { UsageError } from "./syntax.ts";
import { outputOf, withGguf, writeNew } from "./tools.ts";
import type { Command } from "./usage.ts";
import { version } from "./version.ts";

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
    const numbered = numberedKey(load);
    if (numbered !== undefined)
      throw new UsageError(`--activations: ${wrongKey(numbered)}`, { option: "--activations" });
    const out = await outputOf(args, force);
    const data = await readText(calibrationData);
    const texts = textsOf(data, calibrationData);
    const tokens = flags.calibrationTokens ?? rows.calibrationTokens.default;
    const { signal } = terminal;
    await withGguf(args, terminal, async (model, now) => {
      const facts = { ternlight: version(), model: [args.operands[0], now], load, by, tokens, data };
      const pruned = await Memo.during(`${out}.partial`, facts, async (memo) => {
        const onProgress = (what: string, share: number) => {
          terminal.passing(`trying layers ${what}  ${Math.round(100 * share)} %`);
          memo.save();
        };
        const found = await cut(model, {
          targetLayers,
          texts,
          by: by as PruneBy,
          tokens,
          load,
          memo: memo.numbers,
          signal,
          onProgress,
        });
        terminal.passing("");
        await writeNew(out, force, found.file, terminal);
        return found;
      });
      if (plot) await writeText("--plot", plot, prunePicture(pruned, `Layers of ${shownSource(args.operands[0]!)}`));
      const compared = await compare(model, out, heldOut(texts), { load, terminal });
      const { file, ...rest } = pruned;
      if (terminal.json) return terminal.printJson({ file: out, ...rest, compared });
      await terminal.print(`${report(out, pruned)}\n${comparedTable(compared)}\n`);
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
