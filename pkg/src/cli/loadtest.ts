import { type LoadTestOptions, loadTest } from "../bench/loadtest.ts";
import { load } from "../node.ts";
import { modelOf } from "./bench_model.ts";
import { loadTestReport } from "./bench_report.ts";
import { loadOptions } from "./model.ts";
import type { Command } from "./usage.ts";

/** Exits with 1 where an answer differs from what its prompt gets alone. */
export const loadtest: Command = {
  name: "loadtest",
  async run(args, terminal) {
    const options = args.own<LoadTestOptions>("loadtest");
    const { signal, progress: onProgress } = terminal;
    const settings = loadOptions(args, ["serving"]);
    const model = await load(modelOf(args).source, { ...settings, signal, onProgress });
    try {
      terminal.passing("asking");
      const found = await loadTest(model, options, { processBytes: () => process.memoryUsage().rss, signal });
      if (terminal.json) await terminal.printJson(found);
      else await terminal.print(`${loadTestReport(found)}\n`);
      if (found.wrong > 0) terminal.status = 1;
    } finally {
      await model.close();
    }
  },
};
