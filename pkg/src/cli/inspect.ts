import { inspect as describe } from "../node.ts";
import { shownSource } from "../source/address.ts";
import type { Args } from "./args.ts";
import { plan } from "./flags.ts";
import { loadOptions, source } from "./model.ts";
import { report } from "./report.ts";
import { judge, KINDS, type Kind } from "./strict.ts";
import { type Command, UsageError } from "./usage.ts";

export const inspect: Command = {
  name: "inspect",
  summary: "Shows what a model is made of and what running it takes.",
  operands: ["MODEL"],
  flags: ["weights", "no-weights", "strict"],
  async run(args, terminal) {
    // Threads and flavour change nothing here, but a wrong one is still wrong.
    loadOptions(args);
    const strict = strictKind(args);
    const options = { ...args.options("inspect", plan), weights: readsWeights(args) };
    const { signal, progress: onProgress } = terminal;
    const description = await describe(source(args), { ...options, signal, onProgress });
    const verdict = strict && judge(strict, description);
    if (terminal.json) {
      if (verdict?.reason) throw verdict.reason;
      const held = verdict && { strict: { kind: verdict.kind, decidedOn: verdict.decidedOn } };
      return terminal.printJson({ ...description, ...held });
    }
    await terminal.print(`${report(shownSource(args.operands[0]!), description)}\n`);
    if (verdict?.reason) throw verdict.reason;
    if (verdict) await terminal.print(`\n${verdict.kind}, decided on the ${verdict.decidedOn}\n`);
  },
};

function strictKind(args: Args): Kind | null {
  const text = args.text("strict");
  const kind = KINDS.find((kind) => kind === text);
  if (text === undefined || kind) return kind ?? null;
  const expected = KINDS.join(" or ");
  throw new UsageError(`--strict must be ${expected}, not ${JSON.stringify(text)}`, { option: "--strict", expected });
}

function readsWeights(args: Args): boolean {
  if (args.has("weights") && args.has("no-weights")) throw new UsageError("give either --weights or --no-weights");
  const remote = /^https?:/i.test(args.operands[0]!);
  return args.has("weights") || !(args.has("no-weights") || remote);
}
