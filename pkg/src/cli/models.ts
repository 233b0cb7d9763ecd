/** `models`: the catalogue, and whether each model fits here. Nothing is asked of a server. */

import { type BenchOfShape, benchOf, type Fit, fitOf, plan } from "../catalogue/fit.ts";
import { type CatalogueModel, models as catalogue, settingsText } from "../catalogue/models.ts";
import { expectedSpeeds } from "../catalogue/speed.ts";
import { canRun, load } from "../node.ts";
import type { CanRun } from "../types/index.ts";
import type { Args } from "./args.ts";
import { bytes, count, table } from "./format.ts";
import { loadOptions } from "./model.ts";
import type { Terminal } from "./terminal.ts";
import type { Command } from "./usage.ts";

interface Row extends CatalogueModel {
  /** The line that loads it. */
  load: string;
  bench: BenchOfShape | null;
  fit: Fit;
  /** Expected here, with --speed; null where it was not estimated. */
  tokensPerSecond: number | null;
}

export const models: Command = {
  name: "models",
  async run(args, terminal) {
    const planned = await plans(args, terminal);
    terminal.passing("");
    const fits = catalogue.filter((_, i) => planned[i]?.ok);
    const { speed: asked } = args.own<{ speed: boolean }>("speedFlags");
    const speeds = asked ? await estimated(fits, args, terminal) : new Map<CatalogueModel, number>();
    const available = Math.max(...planned.map((plan) => plan?.available ?? 0));
    const rows = catalogue.map((model, i): Row => {
      const fit = fitOf(model, planned[i] ?? null, available);
      const line = `load(${JSON.stringify(model.file)})`;
      return { ...model, load: line, bench: benchOf(model), fit, tokensPerSecond: speeds.get(model) ?? null };
    });
    if (terminal.json) await terminal.printJson({ available, models: rows });
    else await terminal.print(`${report(rows, available, asked)}\n`);
  },
};

const SPEEDS =
  "tokens/s: an estimate for short texts. A small model of each storage type has run here, and its times are scaled by the weights; " +
  "what a few seconds do not suffice for is left empty, and `bench --shape` with what `--json` has for it measures it.";

/** What each model with a known shape needs, one after another. */
async function plans(args: Args, terminal: Terminal): Promise<(CanRun | null)[]> {
  const asked = { ...loadOptions(args), ...args.own<{ memory?: number }>("fitting") };
  const found: (CanRun | null)[] = [];
  for (const model of catalogue) {
    terminal.passing(`planning ${model.name}`);
    found.push(await plan(model, canRun, { ...asked, signal: terminal.signal }));
  }
  return found;
}

async function estimated(models: readonly CatalogueModel[], args: Args, terminal: Terminal) {
  terminal.passing("estimating speeds");
  const { signal } = terminal;
  const onSpeed = ({ name }: CatalogueModel) => terminal.passing(`estimating speeds: ${name}`);
  const speeds = await expectedSpeeds(models, load, { load: loadOptions(args), signal, onSpeed });
  terminal.passing("");
  return speeds;
}

const VERDICTS: Readonly<Record<string, string>> = { true: "fits", false: "does not fit", null: "not known" };

const rate = (speed: number) => speed.toFixed(speed < 10 ? 1 : 0);

function report(rows: readonly Row[], available: number, withSpeeds: boolean): string {
  const cells = rows.map((row) => {
    const { name, parameters, rounded, license, template, context, load, fit, bytes: size, tokensPerSecond } = row;
    return [
      name,
      parameters === null ? "" : count(parameters).replace(" ", "").replace("G", "B"),
      size === null ? "" : `${rounded ? "about " : ""}${bytes(size)}`,
      fit.needed ? bytes(fit.needed.total) : "",
      `${VERDICTS[String(fit.ok)]}${fit.by === "size" ? " *" : ""}`,
      ...(withSpeeds ? [tokensPerSecond === null ? "" : `about ${rate(tokensPerSecond)}`] : []),
      license ?? "",
      context === null ? "" : String(context),
      template ?? "",
      settingsText(row),
      load,
    ];
  });
  const speed = withSpeeds ? ["tokens/s"] : [];
  const head = [
    "model",
    "parameters",
    "file",
    "takes",
    `in ${bytes(available)}`,
    ...speed,
    "license",
    "context",
    "chat",
    "settings",
    "line",
  ];
  return [
    table(`lrrrl${speed.map(() => "r").join("")}lrlll`, [head, ...cells], ""),
    "",
    "takes: weights, KV cache and scratch, planned from the model's shape with the settings given, nothing downloaded.",
    "* its shape is not known here: its file's size alone is compared. `can-run` reads its header and tells.",
    ...(withSpeeds ? [SPEEDS] : []),
    "chat and settings: how its template writes a chat, which load takes from the file, and what its publisher runs it with.",
    "What no source tells is left empty. `--json` has the shape of each, and where everything was found.",
  ].join("\n");
}
