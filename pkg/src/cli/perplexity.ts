import { paths } from "../platform/node.ts";
import { open } from "../source/open.ts";
import { loadAdapters, scaled } from "./adapters.ts";
import { STANDARD } from "./args.ts";
import { readInput, utf8 } from "./input.ts";
import { loadOptions, withModel } from "./model.ts";
import type { Command } from "./usage.ts";

export const perplexity: Command = {
  name: "perplexity",
  async run(args, terminal) {
    const options = args.options("perplexity", ["perplexity"]);
    scaled(args);
    const load = loadOptions(args, ["loading"]);
    const file = args.operands[1]!;
    const text = await (file === STANDARD ? readInput(terminal.signal) : read(file));
    await withModel(args, terminal, load, async (model) => {
      const adapters = await loadAdapters(args, load, model, terminal);
      const result = await model.perplexity(text, { ...options, ...adapters, signal: terminal.signal });
      if (terminal.json) return terminal.printJson(result);
      const { perplexity, nll, tokens } = result;
      await terminal.print(`perplexity ${perplexity.toFixed(4)} (${nll.toFixed(6)} nats a token, ${tokens} tokens)\n`);
    });
  },
};

async function read(path: string): Promise<string> {
  const file = await open({ kind: "path", path }, { paths });
  try {
    return utf8(await file.read(0, file.size), file.name);
  } finally {
    await file.close();
  }
}
