import { inspect as describe } from "../node.ts";
import type { Args } from "./args.ts";
import { plan } from "./flags.ts";
import { loadOptions, source } from "./model.ts";
import { report } from "./report.ts";
import { type Command, UsageError } from "./usage.ts";

export const inspect: Command = {
  name: "inspect",
  summary: "Shows what a model is made of and what running it takes.",
  operands: ["MODEL"],
  flags: ["weights", "no-weights"],
  async run(args, terminal) {
    // Threads and flavour change nothing here, but a wrong one is still wrong.
    loadOptions(args);
    const options = { ...args.options("inspect", plan), weights: readsWeights(args) };
    const { signal, progress: onProgress } = terminal;
    const description = await describe(source(args), { ...options, signal, onProgress });
    if (terminal.json) await terminal.printJson(description);
    else await terminal.print(`${report(args.operands[0]!, description)}\n`);
  },
};

function readsWeights(args: Args): boolean {
  if (args.has("weights") && args.has("no-weights")) throw new UsageError("give either --weights or --no-weights");
  const remote = /^https?:/i.test(args.operands[0]!);
  return args.has("weights") || !(args.has("no-weights") || remote);
}
