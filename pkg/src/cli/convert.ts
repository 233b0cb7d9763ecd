import { once } from "node:events";
import { createReadStream, rmSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { type Converted, convert as write } from "../convert/convert.ts";
import { fetchFile, paths } from "../platform/node.ts";
import { STANDARD } from "./args.ts";
import { bytes, plural } from "./format.ts";
import { loadOptions } from "./model.ts";
import { UsageError } from "./syntax.ts";
import type { Terminal } from "./terminal.ts";
import { checkOutput, withSpec } from "./tools.ts";
import type { Command } from "./usage.ts";

interface Chosen {
  type?: string;
  embedding?: string;
  head?: string;
  force?: boolean;
}

export const convert: Command = {
  name: "convert",
  async run(args, terminal) {
    // The engine's options have no effect here, but a wrong value is still refused.
    loadOptions(args);
    const { i2s } = args.options("inspect", ["plan"]);
    const { force = false, ...chosen } = args.own<Chosen>("convertFlags");
    const { signal, progress: onProgress } = terminal;
    const work = (out: string) =>
      withSpec(args, signal, async (spec, told) => {
        const options = {
          ...chosen,
          ...(i2s ? { i2s } : {}),
          runtime: { fetchFile, paths },
          force,
          signal,
          onProgress,
        };
        const converted = await write(spec, out, options);
        return { ...converted, warnings: [...converted.warnings, ...told] };
      });
    const out = args.operands[1]!;
    if (out === STANDARD) return toOutput(work, terminal);
    const file = target(out);
    await checkOutput(args, file, force, "OUT.gguf");
    const converted = await work(file);
    await terminal.warn(converted.warnings);
    if (terminal.json) await terminal.printJson(converted);
    else await terminal.print(`${summary(converted)}\n`);
  },
};

/** Tensors are not written from their first byte to their last, so that the file is made first and then printed. */
async function toOutput(work: (out: string) => Promise<Converted>, terminal: Terminal): Promise<void> {
  const refuse = (reason: string) => new UsageError(`- as OUT.gguf ${reason}`, { option: "OUT.gguf" });
  if (terminal.json) throw refuse("does not go with --json: both are for standard output");
  if (terminal.isTTY) throw refuse("needs a pipe or a file: a terminal shows no model");
  const folder = await mkdtemp(path.join(tmpdir(), "ternlight-"));
  const clear = () => rmSync(folder, { recursive: true, force: true });
  process.once("exit", clear);
  try {
    const file = path.join(folder, "model.gguf");
    const converted = await work(file);
    const { signal } = terminal;
    const ended = once(signal, "abort");
    for await (const chunk of createReadStream(file, { highWaterMark: 1 << 20 })) {
      // A reader that has stopped reading does not keep it from ending.
      await Promise.race([terminal.printBytes(chunk), ended]);
      signal.throwIfAborted();
    }
    await terminal.warn(converted.warnings);
    await terminal.note(summary({ ...converted, file: "standard output" }));
  } finally {
    process.off("exit", clear);
    await rm(folder, { recursive: true, force: true });
  }
}

/** The name of the file to write. The converter refuses an existing folder by itself. */
function target(out: string): string {
  if (out !== "" && !out.endsWith("/") && !out.endsWith(path.sep)) return out;
  const found = JSON.stringify(out);
  throw new UsageError(`OUT.gguf must be the name of a file, not ${found}`, { option: "OUT.gguf", found });
}

const summary = ({ file, bytes: size, tensors, type }: Converted) =>
  `${file}: ${plural(tensors, "tensor")}, matrices ${type === "keep" ? "as they are" : `in ${type}`}, ${bytes(size)}`;
