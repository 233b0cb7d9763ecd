import { inspect as describe } from "../node.ts";
import { shownSource } from "../source/address.ts";
import type { Args } from "./args.ts";
import { asksForCheck, checkup } from "./check.ts";
import { loadOptions, source } from "./model.ts";
import { report } from "./report.ts";
import { judge, type Kind } from "./strict.ts";
import { UsageError } from "./syntax.ts";
import type { Command } from "./usage.ts";

export const inspect: Command = {
  name: "inspect",
  async run(args, terminal) {
    // Threads and flavour have no effect here, but a wrong value is still refused.
    loadOptions(args);
    if (asksForCheck(args)) return checkup(args, terminal);
    const { strict } = args.own<{ strict?: Kind }>("inspectFlags");
    const options = { ...args.options("inspect", ["plan", "batching"]), weights: readsWeights(args) };
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

function readsWeights(args: Args): boolean {
  if (args.has("weights") && args.has("noWeights")) throw new UsageError("give either --weights or --no-weights");
  const remote = /^https?:/i.test(args.operands[0]!);
  return args.has("weights") || !(args.has("noWeights") || remote);
}
