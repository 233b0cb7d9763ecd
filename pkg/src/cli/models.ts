/** `models`: the catalogue, and whether each model fits here. Nothing is asked of a server. */

import { synthetic } from "../bench/synthetic.ts";
import { type CatalogueModel, models as catalogue } from "../catalogue/models.ts";
import { canRun } from "../node.ts";
import type { CanRun, LoadOptions, MemoryNeeds } from "../types/index.ts";
import { within } from "./advise.ts";
import type { Args } from "./args.ts";
import { bytes, count, table } from "./format.ts";
import { loadOptions } from "./model.ts";
import type { Terminal } from "./terminal.ts";
import type { Command } from "./usage.ts";

interface Fit {
  /** null where nothing tells. */
  ok: boolean | null;
  /** A model is planned by its shape. Where that is not known, the size of its file is compared with the memory. */
  by: "shape" | "size" | null;
  /** By the shape alone. */
  needed: MemoryNeeds | null;
  reason?: string;
  suggestion?: CanRun["suggestion"];
}

interface Row extends CatalogueModel {
  /** The line that loads it. */
  load: string;
  /** What `bench` takes to measure this shape, without a download. */
  bench: { shape: string; type: string; embedding: string } | null;
  fit: Fit;
}

/** The context that a load takes where nothing is said, for models that are trained for more. */
const USUAL_CONTEXT = 4096;

export const models: Command = {
  name: "models",
  async run(args, terminal) {
    const planned = await plans(args, terminal);
    terminal.passing("");
    const available = Math.max(...planned.map((plan) => plan?.available ?? 0));
    const rows = catalogue.map((model, i): Row => {
      const fit = fitOf(model, planned[i] ?? null, available);
      return { ...model, load: `load(${JSON.stringify(model.file)})`, bench: benchOf(model), fit };
    });
    if (terminal.json) await terminal.printJson({ available, models: rows });
    else await terminal.print(`${report(rows, available)}\n`);
  },
};

/** What each model with a known shape needs, one after another. */
async function plans(args: Args, terminal: Terminal): Promise<(CanRun | null)[]> {
  const { memory } = args.own<{ memory?: number }>("fitFlags");
  const asked = loadOptions(args);
  const found: (CanRun | null)[] = [];
  for (const model of catalogue) {
    terminal.passing(`planning ${model.name}`);
    const shape = benchOf(model);
    const options: LoadOptions = { contextLength: usualContext(model), ...asked, signal: terminal.signal };
    const plan = shape && (await canRun(synthetic(shape), options));
    found.push(plan && memory !== undefined ? within(plan, memory) : plan);
  }
  return found;
}

const usualContext = ({ context }: CatalogueModel) => Math.min(context ?? USUAL_CONTEXT, USUAL_CONTEXT);

function benchOf({ shape }: CatalogueModel): Row["bench"] {
  if (!shape) return null;
  const { type, embedding, ...sizes } = shape;
  const words = Object.entries(sizes).map(([name, value]) => `${name}=${value}`);
  return { shape: ["2b4t", ...words].join(), type, embedding };
}

function fitOf({ bytes }: CatalogueModel, plan: CanRun | null, available: number): Fit {
  if (plan) {
    const { ok, needed, reason, suggestion } = plan;
    return { ok, by: "shape", needed, ...(reason ? { reason } : {}), ...(suggestion ? { suggestion } : {}) };
  }
  if (bytes === null) return { ok: null, by: null, needed: null };
  return { ok: bytes < available, by: "size", needed: null };
}

const VERDICTS: Readonly<Record<string, string>> = { true: "fits", false: "does not fit", null: "not known" };

function report(rows: readonly Row[], available: number): string {
  const cells = rows.map(({ name, parameters, rounded, license, load, fit, bytes: size }) => [
    name,
    parameters === null ? "" : count(parameters).replace(" ", "").replace("G", "B"),
    size === null ? "" : `${rounded ? "about " : ""}${bytes(size)}`,
    fit.needed ? bytes(fit.needed.total) : "",
    `${VERDICTS[String(fit.ok)]}${fit.by === "size" ? " *" : ""}`,
    license ?? "",
    load,
  ]);
  const head = ["model", "parameters", "file", "takes", `in ${bytes(available)}`, "license", "line"];
  return [
    table("lrrrlll", [head, ...cells], ""),
    "",
    "takes: weights, KV cache and scratch, planned from the model's shape with the settings given, nothing downloaded.",
    "* its shape is not known here: its file's size alone is compared. `can-run` reads its header and tells.",
    "`--json` has what else is known of each, and where it was found.",
  ].join("\n");
}
