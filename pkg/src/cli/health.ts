import { signalNames } from "../metrics/signals.ts";
import { healthFlags as rows } from "../options/table/operating.ts";
import type { EngineError } from "../types/errors.ts";
import type { Health, HealthSignal, Model } from "../types/index.ts";
import type { Args } from "./args.ts";
import { writeText } from "./file.ts";
import { table } from "./format.ts";
import { loadOptions, withModel } from "./model.ts";
import type { Terminal } from "./terminal.ts";
import { readThresholds } from "./thresholds.ts";
import type { Command } from "./usage.ts";

/** What the model goes on from, where nothing is given. */
const TEXT = "Once upon a time";
/** Answers that are looked at. */
const ANSWERS = 4;

interface Flags {
  thresholds?: string;
  calibrate?: string;
  flipCodes?: number;
  maxTokens?: number;
}

/** Exits with 1 on an alert. */
export const health: Command = {
  name: "health",
  async run(args, terminal) {
    const flags = args.own<Flags>("healthFlags");
    const given =
      flags.thresholds === undefined ? {} : { thresholds: await readThresholds("--thresholds", flags.thresholds) };
    // Whoever asks wants every step to be looked at.
    const load = { ...loadOptions(args, ["loading"]), health: { share: 1, ...given } };
    await withModel(args, terminal, load, async (model) => {
      const damage = flags.flipCodes === undefined ? {} : { damage: { codes: flags.flipCodes } };
      const { signal } = terminal;
      await write(model, args, flags.maxTokens ?? rows.maxTokens.default, signal);
      const found = await model.health({ full: true, ...damage, signal });
      if (flags.calibrate !== undefined)
        await writeText("--calibrate", flags.calibrate, `${JSON.stringify(found.calibrated, null, 2)}\n`, async () => {
          await readThresholds("--calibrate", flags.calibrate!);
          return true;
        });
      await show(found, terminal);
      if (found.state === "alert") terminal.status = 1;
    });
  },
};

/** Lets the model write, so that there is something to look at. */
async function write(model: Model, args: Args, maxTokens: number, signal: AbortSignal): Promise<void> {
  const { tokenizer, vocab } = model.info;
  // Without a tokenizer there are only ids.
  const prompt = tokenizer ? (args.operands[1] ?? TEXT) : [1, 2, 3, 5, 8].map((id) => id % vocab);
  const answers = Array.from({ length: ANSWERS }, (_, seed) => model.generate(prompt, { seed, maxTokens, signal }));
  const ended = await Promise.allSettled(answers.map(({ finished }) => finished));
  for (const one of ended) {
    // What is not finite is what the report is about.
    if (one.status === "rejected" && (one.reason as EngineError).code !== "NonFinite") throw one.reason;
  }
}

async function show(health: Health, terminal: Terminal): Promise<void> {
  if (terminal.json) return terminal.printJson(health);
  const lines = signalNames.map((name) => {
    const { state, value, warn, alert, unit, worse, from } = health.signals[name];
    const facts = Object.entries(from).map(([what, number]) => `${what} ${four(number)}`);
    const mark = worse === "above" ? "≥" : "<";
    return [
      name,
      state,
      shown(value, unit),
      `${mark} ${shown(warn, unit)}`,
      `${mark} ${shown(alert, unit)}`,
      facts.join(", "),
    ];
  });
  const head = ["signal", "state", "value", "warn", "alert", ""];
  const layers = (health.signals.kvEntropy.layers ?? []).flatMap((each, layer) =>
    each ? [[String(layer), four(each.keys), four(each.values)]] : [],
  );
  const entropy = layers.length > 0 ? `\n${table("rrr", [["layer", "keys, bits", "values, bits"], ...layers])}\n` : "";
  await terminal.print(`${health.state}\n${table("llrrrl", [head, ...lines])}\n${entropy}`);
}

function shown(value: number | null, unit: HealthSignal["unit"]): string {
  if (value === null) return "";
  if (unit === "share") return `${Number((100 * value).toPrecision(3))} %`;
  return `${four(value)}${unit === "bits" ? " bits" : ""}`;
}

/** Counts as they are, and four figures of what is none. */
const four = (value: number) => String(Number.isInteger(value) ? value : Number(value.toPrecision(4)));
