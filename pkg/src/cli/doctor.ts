import { type DoctorReport, doctor as examine } from "../node-doctor.ts";
import { redacted } from "../source/address.ts";
import { bytes, table } from "./format.ts";
import { UsageError } from "./syntax.ts";
import type { Command } from "./usage.ts";

export const doctor: Command = {
  name: "doctor",
  async run(args, terminal) {
    const report = await examine(address(args.operands[0]), { signal: terminal.signal });
    if (terminal.json) await terminal.printJson(report);
    else await terminal.print(`${lines(report)}\n`);
    const failed = report.advice.find(({ level }) => level === "error");
    if (failed) terminal.status = 1;
  },
};

function address(text: string | undefined): URL | null {
  if (text === undefined) return null;
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url && /^https?:$/.test(url.protocol)) return url;
  throw new UsageError(`URL must begin with https:// or http://, not ${JSON.stringify(redacted(text))}`, {
    option: "URL",
  });
}

function lines({ advice, ...report }: DoctorReport): string {
  const { threads, threadsReason, memory, source } = report;
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
  return [table("ll", rows, ""), ...advice.map(({ level, text }) => `\n${level}: ${text}`)].join("\n");
}
