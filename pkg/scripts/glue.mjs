import { cpSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { build } from "esbuild";

/**
 * wasm-bindgen's module keeps its instance in module-level variables, so one import is one instance. A worker needs
 * two of the same build: a small one that reads a model's header and plans, then the real one in a memory of the
 * planned size. Without its exports the module is a plain function body, and that body in a function is a factory:
 * every call has its own variables. Nothing here depends on how the glue is written, except for the things that are
 * checked below.
 */
export async function buildGlue(flavour, bindgen, outDir) {
  const built = await build({
    // All but the default export, which fetches: what nobody calls is left out then.
    stdin: { contents: 'export * from "./ternlight.js";', resolveDir: bindgen },
    bundle: true,
    format: "esm",
    target: "es2022",
    define: { "import.meta.url": "undefined" },
    plugins: [poolFromHost],
    write: false,
    logLevel: "warning",
  });
  const [body, names] = splitExports(flavour, shortImports(built.outputFiles[0].text));
  const pages = initialPages(flavour, path.join(bindgen, "ternlight.js"));
  const factory = `export const createGlue = (host) => {\n${body}return { ${names} };\n};\n`;
  writeFileSync(path.join(outDir, `${flavour.name}.js`), `${factory}export const initialPages = ${pages};\n`);
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
 * wasm-bindgen ends the names of imports with 16 digits that tell versions of it apart, which no compression makes smaller.
 * Here are the imports of one version: three digits do. `text` is the glue's or the module's.
 */
export function shortImports(text) {
  const known = new Map();
  return text.replace(/\b(__wbg_\w+_[0-9a-f]{3})[0-9a-f]{13}\b/g, (name, short) => {
    if ((known.get(short) ?? name) !== name)
      throw new Error(`${known.get(short)} and ${name} are both shortened to ${short}`);
    known.set(short, name);
    return short;
  });
}

/** A module's text before its one list of exports, and that list as the members of an object. */
function splitExports(flavour, text) {
  const found = /^export \{([^}]*)\};\s*$/m.exec(text);
  if (!found) throw new Error(`${flavour.name}: the glue's exports are no list at its end; did esbuild change?`);
  const members = found[1]
    .replace(/(\w+) as (\w+)/g, "$2: $1")
    .replace(/\s+/g, " ")
    .trim();
  return [text.slice(0, found.index), members];
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

const memoryOfItsOwn = / \|\| new WebAssembly\.Memory\(\{[^}]*shared: true[^}]*\}\)/;

/** The glue of a build with threads for any build: without a memory of its own, which it is always given, or has no use for. */
export function sharedGlue(threads) {
  if (!memoryOfItsOwn.test(threads)) throw new Error("the glue for threads makes no memory; did wasm-bindgen change?");
  return threads.replace(memoryOfItsOwn, "");
}

/** What a shared memory makes different, always so that it is right for both kinds: views of the memory, texts, the start. */
const DIFFERENT =
  /^(function (get\w+Memory0|decodeText|initSync|__wbg_finalize_init|__wbg_get_imports)\(|(var )?cachedText|if \(.*cachedText|return \{|export const)/;

/** Whether the glue for threads has all that the one without has: each declaration and each import, to the letter. */
export function serves(threads, single) {
  const parts = (text) => text.split(/\n(?=[^\s}\])]| {4}__wb)/).map((part) => /^.*?(?=\s*$|\n {4}\})/s.exec(part)[0]);
  const there = new Set(parts(threads));
  return parts(single).every((part) => there.has(part) || DIFFERENT.test(part));
}
