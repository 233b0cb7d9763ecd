import { type DoctorReport, doctor as examine } from "../node-doctor.ts";
import { bytes, table } from "./format.ts";
import { loadOptions, sourceOf } from "./model.ts";
import type { Command } from "./usage.ts";

export const doctor: Command = {
  name: "doctor",
  async run(args, terminal) {
    const load = loadOptions(args, ["serving", "loading"]);
    const given = args.operands[0];
    // Of an address no more than its first bytes is read, unless flags say how it is to be loaded.
    const planned = Object.keys(load).length > 0 ? { load } : {};
    const report = await examine(given && sourceOf(given), { ...planned, signal: terminal.signal });
    if (terminal.json) await terminal.printJson(report);
    else await terminal.print(`${lines(report)}\n`);
    const failed = report.advice.find(({ level }) => level === "error");
    if (failed) terminal.status = 1;
  },
};

function lines({ advice, ...report }: DoctorReport): string {
  const { threads, threadsReason, memory, source, system, model } = report;
  const free = memory.free === null ? "" : `, ${bytes(memory.free)} free`;
  const rows = [
    ["runtime", report.runtime],
    ["build", report.flavour ?? "none runs"],
    ["threads", `${threads} of ${report.cores}${threadsReason === null ? "" : ` (${threadsReason})`}`],
    ["engine", report.engineError ?? "starts"],
    ["memory", `${bytes(memory.reservable)} for one model at most${free}`],
  ];
  if (source) {
    const { status, error, size, format, range, validator, cors } = source;
    rows.push(["address", error ?? `answers ${status}`]);
    if (error === null) {
      rows.push(["file", `${format}, ${size === null ? "of unknown size" : bytes(size)}`]);
      rows.push(
        ["ranges", range ? "yes" : "no"],
        ["validator", validator ?? "none"],
        ["other origins", cors ? "yes" : "no"],
      );
    }
  }
  if (system) rows.push(...systemRows(system));
  if (model) {
    const { contextLength, memory } = model;
    const parts = `weights ${bytes(memory.weights)}, KV cache ${bytes(memory.kv)} for a context of ${contextLength}`;
    rows.push(["model", model.error ?? `needs ${bytes(memory.total)}: ${parts}`]);
  }
  return [table("ll", rows, ""), ...advice.map(({ level, text }) => `\n${level}: ${text}`)].join("\n");
}

function systemRows({
  processors,
  physicalCores,
  governors,
  cpuLimit,
  memoryLimit,
}: NonNullable<DoctorReport["system"]>) {
  const limits = [
    ...(cpuLimit === null ? [] : [`${Number(cpuLimit.toFixed(2))} cores`]),
    ...(memoryLimit === null ? [] : [bytes(memoryLimit)]),
  ];
  return [
    [
      "processors",
      processors === null ? "not told" : `${processors} on ${physicalCores ?? "an unknown number of"} cores`,
    ],
    ["governor", governors.join(", ") || "not told"],
    ["control group", limits.length > 0 ? `at most ${limits.join(" and ")}` : "no limit"],
  ];
}
