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
    // The engine's options change nothing here, but a wrong one is still wrong.
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
    else await terminal.print(`${told(converted)}\n`);
  },
};

/** A folder that is there is refused where files are. */
function target(out: string): string {
  if (out !== "" && !out.endsWith("/") && !out.endsWith(path.sep)) return out;
  const found = JSON.stringify(out);
  throw new UsageError(`OUT.gguf must be the name of a file, not ${found}`, { option: "OUT.gguf", found });
}

const told = ({ file, bytes: size, tensors, type }: Converted) =>
  `${file}: ${plural(tensors, "tensor")}, matrices in ${type}, ${bytes(size)}`;
