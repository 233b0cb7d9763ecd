import path from "node:path";
import { type Converted, convert as write } from "../convert/convert.ts";
import { fetchFile, paths, toPath } from "../platform/node.ts";
import { toSpec } from "../source/spec.ts";
import type { Args } from "./args.ts";
import { type FlagName, plan } from "./flags.ts";
import { bytes, plural } from "./format.ts";
import { loadOptions, source } from "./model.ts";
import { type Command, UsageError } from "./usage.ts";

const MATRICES = ["tq2_0", "tq1_0", "q1_0", "i2_s"];
const VALUES = ["keep", "f16", "q8_0", "q6_k", "q4_0"];

export const convert: Command = {
  name: "convert",
  summary:
    "Writes a model as one GGUF file. Ternary and 1-bit codes are copied exactly; nothing else can be converted.",
  operands: ["MODEL", "OUT.gguf"],
  flags: ["type", "embedding", "head", "force"],
  async run(args, terminal) {
    // The engine's options change nothing here, but a wrong one is still wrong.
    loadOptions(args);
    const { i2s } = args.options("inspect", plan);
    const out = target(args.operands[1]!);
    const { signal, progress: onProgress } = terminal;
    const converted = await write(toSpec(source(args), { base: null, toPath }), out, {
      ...one("type", MATRICES, args),
      ...one("embedding", VALUES, args),
      ...one("head", VALUES, args),
      ...(i2s ? { i2s } : {}),
      runtime: { fetchFile, paths },
      force: args.has("force"),
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

function one(name: FlagName, values: readonly string[], args: Args): Record<string, string> {
  const value = args.text(name);
  if (value === undefined) return {};
  if (values.includes(value)) return { [name]: value };
  const expected = values.join(", ");
  throw new UsageError(`--${name} must be one of ${expected}, not ${value}`, {
    option: `--${name}`,
    expected,
    found: value,
  });
}

const told = ({ file, bytes: size, tensors, type }: Converted) =>
  `${file}: ${plural(tensors, "tensor")}, matrices in ${type}, ${bytes(size)}`;
