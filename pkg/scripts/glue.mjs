import { cpSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { build } from "esbuild";

/**
 * wasm-bindgen's module keeps its instance in module-level variables, so one import is one instance. A worker needs
 * two of the same build: a small one that reads a model's header and plans, then the real one in a memory of the
 * planned size. Bundled as CommonJS the module is a plain function body, and that body in a function is a factory:
 * every call has its own variables. Nothing here depends on how the glue is written, except for the two things that
 * are checked below.
 */
export async function buildGlue(flavour, bindgen, outDir) {
  const entry = path.join(bindgen, "ternlight.js");
  await build({
    entryPoints: [entry],
    outfile: path.join(outDir, `${flavour.name}.js`),
    bundle: true,
    format: "cjs",
    target: "es2022",
    define: { "import.meta.url": "undefined" },
    banner: { js: "export const createGlue = (host) => {\nconst module = {};" },
    footer: { js: `return module.exports;\n};\nexport const initialPages = ${initialPages(flavour, entry)};` },
    plugins: [poolFromHost],
    logLevel: "warning",
  });
  if (flavour.tool) {
    // Other classes than the engine's, for whoever imports this glue and no other.
    cpSync(path.join(bindgen, "ternlight.d.ts"), path.join(outDir, `${flavour.name}-bindings.d.ts`));
    const own = `typeof import("./${flavour.name}-bindings.d.ts")`;
    writeFileSync(path.join(outDir, `${flavour.name}.d.ts`), `export declare const createGlue: () => ${own};\n`);
    return;
  }
  const types = 'import type { Build } from "../../src/wasm/load.ts";\n';
  const members = ["createGlue", "initialPages"].map((name) => `export declare const ${name}: Build["${name}"];\n`);
  writeFileSync(path.join(outDir, `${flavour.name}.d.ts`), types + members.join(""));
  if (flavour.threads) cpSync(path.join(bindgen, "ternlight.d.ts"), path.join(outDir, "bindings.d.ts"));
}

/**
 * wasm-bindgen-rayon starts its workers by a file of its own that imports itself from a blob: that breaks under a CSP
 * and in every bundler. Whoever makes the glue brings the workers instead.
 */
const poolFromHost = {
  name: "pool-from-host",
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /\/workerHelpers\.no-bundler\.js$/ }, () => ({ path: "startWorkers", namespace: "host" }));
    onLoad({ filter: /.*/, namespace: "host" }, () => ({
      contents: "export const startWorkers = (...args) => host.startWorkers(...args);",
    }));
  },
};

/** What the module needs before it has allocated anything. Only a memory that is imported has to be told. */
function initialPages(flavour, entry) {
  if (!flavour.threads) return 0;
  const found = /new WebAssembly\.Memory\(\{initial:(\d+),maximum:\d+,shared:true\}\)/.exec(
    readFileSync(entry, "utf8"),
  );
  if (!found) throw new Error(`${flavour.name}: the glue makes no shared memory; did the link arguments change?`);
  return Number(found[1]);
}
