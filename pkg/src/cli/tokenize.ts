import { table } from "./format.ts";
import { givenText } from "./input.ts";
import { loadOptions, withModel } from "./model.ts";
import { UsageError } from "./syntax.ts";
import type { Command } from "./usage.ts";

export const tokenize: Command = {
  name: "tokenize",
  async run(args, terminal) {
    const missing = new UsageError("-p TEXT is missing", { option: "--prompt" });
    const load = loadOptions(args);
    const text = await givenText(args, missing, terminal.signal);
    await withModel(args, terminal, load, async (model) => {
      const ids = await model.tokenize(text, { addSpecial: !args.has("addSpecial") });
      if (terminal.json) return terminal.printJson({ ids });
      const words = await Promise.all(ids.map(async (id) => JSON.stringify(await model.detokenize([id]))));
      await terminal.print(`${table("rl", [["id", "token"], ...ids.map((id, i) => [String(id), words[i]!])])}\n`);
    });
  },
};
