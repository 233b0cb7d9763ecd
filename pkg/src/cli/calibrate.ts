import { mkdir } from "node:fs/promises";
import path from "node:path";
import { checkTarget } from "../convert/write.ts";
import { calibrate as choose } from "../node-quality.ts";
import { calibrateFlags as rows } from "../options/table/quality.ts";
import type { Calibrated, CalibratedMatrix } from "../quality/types.ts";
import { shownSource } from "../source/address.ts";
import { Memo, textsOf } from "./calibration.ts";
import { activationsTable } from "./compared.ts";
import { readText, unwritable } from "./file.ts";
import { table } from "./format.ts";
import { loadOptions, source } from "./model.ts";
import { UsageError } from "./syntax.ts";
import { lookAt, type ModelVersion, outputOf, withGguf, withSpec, writeNew, writeNewText } from "./tools.ts";
import type { Command } from "./usage.ts";
import { version } from "./version.ts";

interface Flags {
  dataset?: string;
  calibrationSamples?: number;
  entropyThreshold?: number;
  budget?: number;
  calibrationTokens?: number;
  outputDir?: string;
  force?: boolean;
}

const MAP = "activations.json";

export const calibrate: Command = {
  name: "calibrate",
  async run(args, terminal) {
    const load = loadOptions(args);
    const { dataset, outputDir, force = false, ...flags } = args.own<Flags>("calibrateFlags");
    const missing = (flag: string) => new UsageError(`${flag} is missing`, { option: flag.split(" ")[0]! });
    if (dataset === undefined) throw missing("--dataset FILE");
    if (outputDir === undefined) throw missing("--output-dir D");
    if (args.has("activations")) throw new UsageError("calibrate chooses the activations: --activations is not for it");
    if (flags.budget !== undefined && flags.entropyThreshold !== undefined) {
      throw new UsageError("give either --entropy-threshold or --budget");
    }
    const copy = args.has("output") ? await outputOf(args, force) : null;
    const map = path.join(outputDir, MAP);
    await mkdir(outputDir, { recursive: true }).catch((cause) => {
      throw unwritable("--output-dir", outputDir, cause);
    });
    await checkTarget(map, force);
    const data = await readText(dataset);
    const texts = textsOf(data, dataset);
    const tokens = flags.calibrationTokens ?? rows.calibrationTokens.default;
    const work = async (model: string | URL, now: ModelVersion) => {
      const facts = { ternlight: version(), model: [args.operands[0], now], load, tokens, data };
      const found = await Memo.during(`${map}.partial`, facts, async (memo) => {
        const { file, ...chosen } = await choose(model, {
          texts,
          samples: flags.calibrationSamples,
          entropyThreshold: flags.entropyThreshold,
          budget: flags.budget,
          tokens,
          gguf: copy !== null,
          load,
          memo: memo.numbers,
          signal: terminal.signal,
          onProgress: (what, share) => {
            terminal.passing(`measuring ${what}  ${Math.round(100 * share)} %`);
            memo.save();
          },
        });
        terminal.passing("");
        await writeNewText(map, force, `${JSON.stringify(chosen.map, null, 2)}\n`);
        if (file && copy !== null) await writeNew(copy, force, file, terminal);
        return chosen;
      });
      if (terminal.json) return terminal.printJson({ file: map, copy, ...found });
      await terminal.print(`${report(shownSource(args.operands[0]!), map, copy, found)}\n`);
    };
    // A header takes the map only in a GGUF.
    if (copy !== null) return withGguf(args, terminal, work);
    await withSpec(args, terminal.signal, async (spec) =>
      work(source(args), (await lookAt(spec, terminal.signal)).version),
    );
  },
};

function report(name: string, map: string, copy: string | null, found: Omit<Calibrated, "file">): string {
  const losses = (["int8", "int4", "int2"] as const).filter((precision) =>
    found.matrices.some((matrix) => matrix.losses[precision] !== undefined),
  );
  const head = [
    "matrix",
    "entropy, bits",
    "least",
    "most",
    "rms",
    ...losses.map((one) => `${one}, nats`),
    "trained",
    "chosen",
  ];
  const line = (matrix: CalibratedMatrix) => [
    matrix.name,
    matrix.entropy.toFixed(2),
    ...[matrix.min, matrix.max, matrix.rms].map((value) => value.toPrecision(3)),
    ...losses.map((one) => matrix.losses[one]?.toFixed(4) ?? ""),
    matrix.trained,
    matrix.precision,
  ];
  const changed = Object.keys(found.map).length > 0;
  return [
    `${name}: ${map}${copy === null ? "" : `, ${copy}`}, by ${found.by === "budget" ? "the loss of each matrix" : "entropy"}`,
    table(`lrrrr${"r".repeat(losses.length)}ll`, [head, ...found.matrices.map(line)]),
    activationsTable(found.report.rows, [found.bytesBefore, found.bytesAfter]),
    changed ? gain(found.matrices) : "Nothing is rounded otherwise than in training: the map is empty.",
  ].join("\n\n");
}

/** What a map is good for here, which is not speed alone. */
function gain(matrices: readonly CalibratedMatrix[]): string {
  const narrow = ["int8", "int4", "int2"];
  const narrower = matrices.filter(({ trained, precision }) => !narrow.includes(trained) && narrow.includes(precision));
  const same = "int4 and int2 are multiplied as int8 is";
  if (narrower.length === 0) return `Nothing is gained in speed or memory: ${same}.`;
  return narrower.some(({ bits }) => bits <= 2)
    ? `Weights of 1 and 2 bits are faster with these inputs than with int14; ${same}.`
    : `Nothing is gained in memory; ${same}. Only weights of 1 and 2 bits are known to be faster with it than with int14: for these, ternlight bench --activations int8 tells.`;
}
