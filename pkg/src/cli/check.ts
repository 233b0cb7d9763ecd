/** `inspect --check`: what makes a converted file write nonsense, and a new file without it. */

import path from "node:path";
import { check } from "../node-quality.ts";
import type { Checkup, Finding } from "../quality/types.ts";
import { shownSource } from "../source/address.ts";
import { EngineError } from "../types/errors.ts";
import type { Args } from "./args.ts";
import { compare, comparedTable, type Told } from "./compared.ts";
import { plural } from "./format.ts";
import { loadOptions, source } from "./model.ts";
import { UsageError } from "./syntax.ts";
import type { Terminal } from "./terminal.ts";
import { checkOutput, writeNew } from "./tools.ts";

interface CheckFlags {
  check?: boolean;
  fix?: boolean;
  output?: string;
  force?: boolean;
}

/** What the command prints with --json. */
interface Printed extends Omit<Checkup, "mended"> {
  /** The new file, and what a check of it finds. */
  fixed: { file: string; bytes: number; left: Finding[]; compared: Told | null } | null;
}

/** Whether a check was asked for; its flags go with nothing else. */
export function asksForCheck(args: Args): boolean {
  const { check, fix, output, force } = args.own<CheckFlags>("checkFlags");
  if (fix && !check) throw new UsageError("--fix belongs to --check");
  if ((output !== undefined || force) && !fix) throw new UsageError("--output and --force belong to --fix");
  return check === true;
}

/** Exits with 1 where something wrong is left: all that was found, or with --fix what could not be mended. */
export async function checkup(args: Args, terminal: Terminal): Promise<void> {
  const { fix = false, output, force = false } = args.own<CheckFlags>("checkFlags");
  const model = source(args);
  const out = fix ? (output ?? besideOf(model)) : null;
  if (out !== null) await checkOutput(args, out, force);
  const { signal } = terminal;
  const load = loadOptions(args);
  const run = args.has("noWeights") ? false : undefined;
  const checked = async (source: string | URL, what: string) => {
    const onProgress = (share: number) => terminal.passing(`${what}  ${Math.round(100 * share)} %`);
    const checkup = await check(source, { load, run, signal, onProgress });
    terminal.passing("");
    return checkup;
  };
  /** On the built-in text; null where one of both does not run. */
  const beforeAndAfter = (model: string | URL, out: string) =>
    compare(model, out, "", { load, terminal }).catch((error) => {
      if (error instanceof EngineError && error.code !== "Closed") return null;
      throw error;
    });
  const { mended, ...found } = await checked(model, "checking");
  let fixed: Printed["fixed"] = null;
  if (out !== null && mended) {
    await writeNew(out, force, mended, terminal);
    // What one mend uncovers, or leaves, only a check of the new file knows.
    const { findings: left } = await checked(out, "checking the new file");
    fixed = { file: out, bytes: mended.size, left, compared: run === false ? null : await beforeAndAfter(model, out) };
  }
  if ((fixed?.left ?? found.findings).length > 0) terminal.status = 1;
  if (terminal.json) await terminal.printJson({ check: { ...found, fixed } satisfies Printed });
  else await terminal.print(`${report(shownSource(args.operands[0]!), { ...found, fixed })}\n`);
}

/** The name of a mended file that nobody has named. */
function besideOf(model: string | URL): string {
  const name = model instanceof URL ? model.pathname : model.replace(/[?#].*$/, "");
  const base = path.basename(name).replace(/\.gguf$/i, "") || "model";
  const remote = /^[a-z][a-z0-9+.-]+:/i.test(String(model));
  return path.join(remote ? "." : path.dirname(name), `${base}.fixed.gguf`);
}

function report(name: string, { findings, unchecked, fixed }: Printed): string {
  const line = ({ level, rule, message }: Finding, rest: string) => `${level}  ${rule}: ${message}\n  ${rest}`;
  const place = ({ rule, tensor, key }: Finding) => JSON.stringify([rule, tensor, key]);
  const left = new Set(fixed?.left.map(place));
  const mended = (finding: Finding) => fixed && !left.has(place(finding));
  return [
    `${name}: ${findings.length > 0 ? plural(findings.length, "finding") : "nothing found"}`,
    ...findings.map((finding) => line(finding, mended(finding) ? "mended" : finding.advice)),
    ...[...new Set(unchecked.map(({ reason }) => reason))].map((reason) => {
      const rules = unchecked.flatMap((one) => (one.reason === reason ? [one.rule] : []));
      return `not checked  ${rules.join(", ")}: ${reason}`;
    }),
    ...(fixed
      ? [
          `${fixed.file}: ${fixed.bytes} bytes${fixed.left.length > 0 ? `, ${plural(fixed.left.length, "finding")} left` : ""}`,
        ]
      : []),
    ...(fixed
      ? fixed.left
          .filter((one) => !findings.some((old) => place(old) === place(one)))
          .map((one) => line(one, one.advice))
      : []),
    ...(fixed?.compared ? [comparedTable(fixed.compared)] : []),
  ].join("\n");
}
