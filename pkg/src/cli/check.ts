/** `inspect --check`: what makes a converted file write nonsense, and a new file without it. */

import path from "node:path";
import { checkTarget } from "../convert/write.ts";
import { check } from "../node-quality.ts";
import type { Checkup, Finding } from "../quality/types.ts";
import { shownSource } from "../source/address.ts";
import type { Args } from "./args.ts";
import { plural } from "./format.ts";
import { source } from "./model.ts";
import { UsageError } from "./syntax.ts";
import type { Terminal } from "./terminal.ts";
import { writeNew } from "./tools.ts";

interface CheckFlags {
  check?: boolean;
  fix?: boolean;
  output?: string;
  force?: boolean;
}

/** What the command prints with --json. */
interface Printed extends Omit<Checkup, "mended"> {
  fixed: { file: string; bytes: number } | null;
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
  if (out !== null) await checkTarget(out, force);
  const { signal } = terminal;
  const onProgress = (share: number) => terminal.passing(`checking  ${Math.round(100 * share)} %`);
  const { mended, ...found } = await check(model, {
    run: args.has("noWeights") ? false : undefined,
    signal,
    onProgress,
  });
  terminal.passing("");
  if (out !== null && mended) await writeNew(out, force, mended, terminal);
  const fixed = out !== null && mended ? { file: out, bytes: mended.size } : null;
  const left = found.findings.filter(({ fixable }) => !(fixed && fixable));
  if (left.length > 0) terminal.status = 1;
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
  const line = ({ level, rule, message, advice, fixable }: Finding) =>
    `${level}  ${rule}: ${message}\n  ${fixed && fixable ? "mended" : advice}`;
  return [
    `${name}: ${findings.length > 0 ? plural(findings.length, "finding") : "nothing found"}`,
    ...findings.map(line),
    ...unchecked.map(({ rule, reason }) => `not checked  ${rule}: ${reason}`),
    ...(fixed ? [`${fixed.file}: ${fixed.bytes} bytes`] : []),
  ].join("\n");
}
