import { slice as cut } from "../node-quality.ts";
import { splitText } from "../quality/slice.ts";
import type { SliceOptions } from "../quality/types.ts";
import { EngineError } from "../types/errors.ts";
import { compare, comparedTable } from "./compared.ts";
import { readText } from "./file.ts";
import { bytes, percent } from "./format.ts";
import { loadOptions } from "./model.ts";
import { UsageError } from "./syntax.ts";
import { outputOf, withGguf, writeNew } from "./tools.ts";
import type { Command } from "./usage.ts";

interface Flags {
  keep?: number;
  text?: string;
  tokens?: string;
  force?: boolean;
}

export const slice: Command = {
  name: "slice",
  async run(args, terminal) {
    // What is measured is loaded with them.
    const load = loadOptions(args);
    const { keep, text, tokens, force = false } = args.own<Flags>("sliceFlags");
    if (text === undefined && tokens === undefined) throw new UsageError("give --text or --tokens");
    if (tokens === undefined && keep === undefined) throw new UsageError("--text needs --keep N", { option: "--keep" });
    if (tokens !== undefined && keep !== undefined) throw new UsageError("--keep and --tokens exclude each other");
    const out = await outputOf(args, force);
    const { signal } = terminal;
    const options: SliceOptions = {
      ...(keep === undefined ? {} : { keep }),
      ...(text === undefined ? {} : { text: await readText(text) }),
      ...(tokens === undefined ? {} : { tokens: tokensOf(await readText(tokens), tokens) }),
      load,
      signal,
    };
    await withGguf(args, terminal, async (model) => {
      const { file, ids, ...sliced } = await cut(model, options);
      await writeNew(out, force, file, terminal);
      // The last tenth chose nothing.
      const other = options.text === undefined ? "" : splitText(options.text).other;
      const compared = await compare(model, out, other, { load, terminal });
      if (terminal.json) return terminal.printJson({ file: out, ...sliced, ids: Array.from(ids), compared });
      const { before, after, bytesBefore, bytesAfter, coverage, heldOut } = sliced;
      const lines = [
        `${out}: ${after} of ${before} tokens, ${bytes(bytesAfter)} of ${bytes(bytesBefore)}`,
        ...(coverage === null ? [] : [`coverage: ${percent(coverage)} of the text's tokens stay`]),
        ...(heldOut ? [`held-out text: ${heldOut.after} tokens in place of ${heldOut.before}${more(heldOut)}`] : []),
        comparedTable(compared),
      ];
      await terminal.print(`${lines.join("\n")}\n`);
    });
  },
};

const more = ({ before, after }: { before: number; after: number }) =>
  before > 0 ? `, ${percent(after / before - 1)} more` : "";

/** A JSON list of ids and texts, or an id a line. */
function tokensOf(text: string, file: string): (number | string)[] {
  const wrong = (expected: string, found: string) =>
    new EngineError("BadValue", `${file}: expected ${expected}, got ${found.slice(0, 80)}`, { file, expected });
  if (text.trimStart().startsWith("[")) {
    let list: unknown;
    try {
      list = JSON.parse(text);
    } catch (cause) {
      throw new EngineError("BadValue", `${file} is not JSON: ${(cause as Error).message}`, { file }, { cause });
    }
    const fine = (list as unknown[]).every((one) => typeof one === "string" || Number.isInteger(one));
    if (!fine) throw wrong("a list of ids and texts", text);
    return list as (number | string)[];
  }
  const lines = text.split(/\r?\n/).filter((line) => line.trim() !== "");
  const bad = lines.find((line) => !/^\s*\d{1,9}\s*$/.test(line));
  if (bad !== undefined) throw wrong("an id a line", bad);
  return lines.map(Number);
}
