/**
 * The option table while it is built. Its rows are data, so the table and the lists that follow from it are worked out here, and
 * bundles get the results: without help, flags, units and all else that only the command line and the reference pages use.
 */
import path from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const options = fileURLToPath(new URL("../src/options/", import.meta.url));

/** What a module of TypeScript exports, worked out: it may import nothing that needs a build. */
export async function evaluate(file) {
  const bundled = await build({ entryPoints: [file], bundle: true, format: "esm", write: false });
  return import(`data:text/javascript;base64,${Buffer.from(bundled.outputFiles[0].contents).toString("base64")}`);
}

/** What a check needs to know of a row, and what a caller may leave out. */
function lean(value) {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  if ("kind" in value && "to" in value) {
    const { kind, was, default: byDefault } = value;
    return { kind, was, default: byDefault };
  }
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, lean(inner)]));
}

const computed = /[\\/]options[\\/](table|routes|table[\\/](command_line|operating|quality))\.ts$/;

/** For esbuild. */
export const leanOptions = {
  name: "options",
  setup(build) {
    build.onLoad({ filter: computed }, async ({ path: file }) => {
      if (!file.startsWith(path.resolve(options))) return null;
      const { default: _, ...exports } = await evaluate(file);
      const lines = Object.entries(exports).map(
        ([name, value]) => `export const ${name} = ${JSON.stringify(lean(value))};`,
      );
      return { contents: lines.join("\n"), loader: "js" };
    });
  },
};
