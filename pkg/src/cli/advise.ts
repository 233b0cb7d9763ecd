import { canRun as fits } from "../node.ts";
import {
  recommend as advise,
  type DeviceReport,
  deviceReport as examine,
  type Recommendation,
  type RecommendOptions,
} from "../node-doctor.ts";
import { shownSource } from "../source/address.ts";
import { EngineError } from "../types/errors.ts";
import type { CanRun } from "../types/index.ts";
import type { Args } from "./args.ts";
import { readText } from "./file.ts";
import { bytes, memoryText, ms, plural, table } from "./format.ts";
import { loadOptions, source } from "./model.ts";
import type { Command } from "./usage.ts";

export const recommend: Command = {
  name: "recommend",
  async run(args, terminal) {
    const fixed = loadOptions(args, ["serving", "loading"]);
    const device = await deviceOf(args);
    const { signal } = terminal;
    const options = { ...args.own<RecommendOptions>("advising"), load: fixed, ...(device ? { device } : {}), signal };
    terminal.passing("measuring");
    const found = await advise(source(args), options);
    if (terminal.json) await terminal.printJson(found);
    else await terminal.print(`${recommendation(shownSource(args.operands[0]!), found)}\n`);
    if (!found.fits) terminal.status = 1;
  },
};

const NUMBERS: readonly (keyof DeviceReport)[] = ["cores", "threads", "readGbPerSecond", "gmacPerSecond"];

async function deviceOf(args: Args): Promise<DeviceReport | null> {
  const file = args.text("deviceFile");
  if (file === undefined) return null;
  const option = "--device";
  const text = await readText(file, option);
  let found: DeviceReport;
  try {
    found = JSON.parse(text);
  } catch (cause) {
    throw new EngineError("BadValue", `${file} is not JSON`, { option, file }, { cause });
  }
  for (const key of NUMBERS) {
    if (!(Number(found?.[key]) > 0))
      throw new EngineError("BadValue", `${file} is no report of device-report: ${key} must be a number above 0`, {
        option,
        file,
        key,
      });
  }
  return found;
}

function recommendation(name: string, { fits, missing, settings, predicted, considered, why }: Recommendation): string {
  const { tokensPerSecond, firstTokenMs, answerMs, memory } = predicted;
  const facts = [
    ["tokens/s", tokensPerSecond.toFixed(1)],
    ["first token", `${ms(firstTokenMs.p50)}, p95 ${ms(firstTokenMs.p95)}`],
    ["whole answer", `${ms(answerMs.p50)}, p95 ${ms(answerMs.p95)}`],
    ["memory", memoryText(memory)],
  ];
  const rows = considered.map((one) => [
    String(one.maxSequences),
    one.tokensPerSecond.toFixed(1),
    ms(one.p95Ms),
    bytes(one.memoryBytes),
    one.fits ? "" : one.hasRoom ? "misses what was asked for" : "does not fit",
  ]);
  const head = ["at once", "tokens/s", "p95", "memory", ""];
  return [
    fits ? name : `${name}: no setting gives what was asked for. Missing: ${missing}`,
    table(
      "ll",
      Object.entries(settings).map(([option, value]) => [option, String(value)]),
    ),
    "Predicted",
    table("ll", facts),
    "Considered",
    table("rrrrl", [head, ...rows]),
    "Why",
    why.map((reason) => `  ${reason}`).join("\n"),
  ].join("\n");
}

export const canRun: Command = {
  name: "can-run",
  async run(args, terminal) {
    const { signal, progress: onProgress } = terminal;
    const options = { ...loadOptions(args, ["serving", "loading"]), ...args.own<{ memory?: number }>("fitting") };
    const found = await fits(source(args), { ...options, signal, onProgress });
    if (terminal.json) await terminal.printJson(found);
    else await terminal.print(`${verdictText(shownSource(args.operands[0]!), found)}\n`);
    if (!found.ok) terminal.status = 1;
  },
};

function verdictText(name: string, { ok, needed, available, reason, suggestion, heads }: CanRun): string {
  const rows = heads.map(({ head, memory, ok }) => [head, bytes(memory.total), ok ? "fits" : "does not fit"]);
  const instead = Object.entries(suggestion ?? {}).map(([option, value]) => `${option} ${value}`);
  return [
    `${name} ${ok ? "fits" : "does not fit"}`,
    table("ll", [
      ["needed", memoryText(needed)],
      ["available", bytes(available)],
    ]),
    ...(ok ? [] : [`  ${reason}`]),
    ...(instead.length > 0 ? [`  it fits with ${instead.join(", ")}`] : []),
    ...(rows.length > 1 ? ["Embedding and head", table("lrl", rows)] : []),
  ].join("\n");
}

export const deviceReport: Command = {
  name: "device-report",
  async run(args, terminal) {
    loadOptions(args);
    terminal.passing("measuring");
    const found = await examine({ signal: terminal.signal });
    if (terminal.json) return terminal.printJson(found);
    const { cores, physicalCores, threads, flavour, readGbPerSecond, gmacPerSecond, freeMemory } = found;
    const rows = [
      ["processor", found.processor ?? "not told"],
      ["cores", physicalCores === null ? String(cores) : `${physicalCores}, ${plural(cores, "thread")}`],
      ["runtime", found.runtime],
      ["build", `${flavour}, ${plural(threads, "thread")}`],
      ["reads", `${readGbPerSecond.toFixed(1)} GB/s`],
      ["multiplies", `${gmacPerSecond.toFixed(1)} · 10⁹ products/s`],
      ["memory", freeMemory === null ? "not told" : `${bytes(freeMemory)} free`],
    ];
    await terminal.print(`${table("ll", rows, "")}\n`);
  },
};
