import { loadAdapters, scaled } from "./adapters.ts";
import { textOf } from "./input.ts";
import { loadOptions, withModel } from "./model.ts";
import type { Command } from "./usage.ts";

export const perplexity: Command = {
  name: "perplexity",
  async run(args, terminal) {
    const options = args.options("perplexity", ["perplexity"]);
    scaled(args);
    const load = loadOptions(args, ["loading"]);
    const text = await textOf(args.operands[1]!, terminal.signal);
    await withModel(args, terminal, load, async (model) => {
      const adapters = await loadAdapters(args, load, model, terminal);
      const result = await model.perplexity(text, { ...options, ...adapters, signal: terminal.signal });
      if (terminal.json) return terminal.printJson(result);
      const { perplexity, nll, tokens } = result;
      await terminal.print(`perplexity ${perplexity.toFixed(4)} (${nll.toFixed(6)} nats a token, ${tokens} tokens)\n`);
    });
  },
};
