import { paths } from "../platform/node.ts";
import { open } from "../source/open.ts";
import { EngineError } from "../types/errors.ts";
import { loadAdapters, scaled } from "./adapters.ts";
import { loadOptions, withModel } from "./model.ts";
import type { Command } from "./usage.ts";

export const perplexity: Command = {
  name: "perplexity",
  async run(args, terminal) {
    const options = args.options("perplexity", ["perplexity"]);
    scaled(args);
    const load = loadOptions(args, ["loading"]);
    const text = await read(args.operands[1]!);
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
    const bytes = await file.read(0, file.size);
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch (cause) {
    if (cause instanceof EngineError) throw cause;
    throw new EngineError("BadValue", `${file.name} is not UTF-8`, { file: file.name }, { cause });
  } finally {
    await file.close();
  }
}
