import path from "node:path";
import { type Converted, convert as write } from "../convert/convert.ts";
import { fetchFile, paths, toPath } from "../platform/node.ts";
import { toSpec } from "../source/spec.ts";
import { bytes, plural } from "./format.ts";
import { loadOptions, source } from "./model.ts";
import { UsageError } from "./syntax.ts";
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
    const out = target(args.operands[1]!);
    const { signal, progress: onProgress } = terminal;
    const converted = await write(toSpec(source(args), { base: null, toPath }), out, {
      ...chosen,
      ...(i2s ? { i2s } : {}),
      runtime: { fetchFile, paths },
      force,
      signal,
      onProgress,
    });
    await terminal.warn(converted.warnings);
    if (terminal.json) await terminal.printJson(converted);
    else await terminal.print(`${summary(converted)}\n`);
  },
};

/** The name of the file to write. The converter refuses an existing folder by itself. */
function target(out: string): string {
  if (out !== "" && !out.endsWith("/") && !out.endsWith(path.sep)) return out;
  const found = JSON.stringify(out);
  throw new UsageError(`OUT.gguf must be the name of a file, not ${found}`, { option: "OUT.gguf", found });
}

const summary = ({ file, bytes: size, tensors, type }: Converted) =>
  `${file}: ${plural(tensors, "tensor")}, matrices in ${type}, ${bytes(size)}`;
