/**
 * Builds the package: the wasm modules, then the bundles and the types. What has not changed is not built again.
 *
 *     node pkg/scripts/build.mjs           everything that `npm pack` takes, and what stands in clients/
 *     node pkg/scripts/build.mjs page      the modules that an isolated page loads on this machine, and a page's bundles
 *     node pkg/scripts/build.mjs bundles   bundles and types, beside the modules that are there
 *     node pkg/scripts/build.mjs quick     one module in seconds and what Node loads, in target/quick
 *     node pkg/scripts/build.mjs profile   the modules of this machine with the names of their functions, for profilers, in
 *                                          target/profile: bundles for Node and pages that are not minified
 */
import { chmodSync, cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { build as esbuild } from "esbuild";
import { minified } from "../../scripts/minified.mjs";
import { tools as extras, flavours, root } from "./cargo.mjs";
import { clients } from "./clients.mjs";
import { buildFlavour, buildQuickly, command, npmLock, npmTool, removeOutdated, say } from "./flavour.mjs";
import { serves, sharedGlue } from "./glue.mjs";
import { leanOptions } from "./options.mjs";
import { hash, ifChanged } from "./stamps.mjs";

const pkg = fileURLToPath(new URL("../", import.meta.url));
const dist = path.join(pkg, "dist");
const profiled = path.join(root, "target", "profile");

/** Bundles by where they run. */
const forPages = [
  { format: "esm", entryPoints: ["src/index.ts", "src/worker.ts", "src/demo.ts", "src/edge.ts", "src/doctor.ts"] },
  // A page loads it with the first name of a model on a hub.
  { format: "esm", entryPoints: ["src/hub.ts"] },
  // Tools that a page imports by themselves.
  { format: "esm", entryPoints: ["src/quality.ts"] },
  // For edge and service workers too.
  { format: "esm", entryPoints: ["src/server.ts", "src/integration.ts"] },
  // It finds the package by its name, so that a program has one engine for it and for itself.
  { format: "esm", entryPoints: ["src/prompt-api.ts"], external: ["ternlight"] },
  // One script tag; what it imports when there is a model to load stays beside it.
  { format: "esm", entryPoints: ["src/chat-element.ts"] },
  { format: "esm", entryPoints: [{ in: "src/bench/page.ts", out: "bench" }] },
  { format: "esm", entryPoints: [{ in: "src/catalogue/page.ts", out: "catalogue" }] },
  { format: "esm", entryPoints: [{ in: "src/text/chat.ts", out: "chat" }] },
  { format: "esm", entryPoints: [{ in: "src/constrain/formats.ts", out: "formats" }] },
  { format: "esm", entryPoints: [{ in: "src/text/from_gguf.ts", out: "gguf" }] },
  { format: "esm", entryPoints: [{ in: "src/options/activation_map.ts", out: "maps" }] },
  { format: "esm", entryPoints: [{ in: "src/signals/signals.ts", out: "signals" }] },
  { format: "esm", entryPoints: [{ in: "src/split/split.ts", out: "split" }] },
  { format: "esm", entryPoints: [{ in: "src/markdown/markdown.ts", out: "markdown" }] },
  { format: "iife", entryPoints: ["src/isolate.ts"] },
];
const forNode = [
  { entryPoints: ["src/node.ts", "src/node-worker.ts", "src/node-thread.ts"] },
  { entryPoints: ["src/node-doctor.ts", "src/node-quality.ts", "src/batch.ts"] },
  // Its help comes from the whole option table.
  { entryPoints: [{ in: "src/cli/main.ts", out: "cli" }], banner: { js: "#!/usr/bin/env node" }, wholeOptions: true },
];
const pageFiles = [
  ...[
    "index.js",
    "worker.js",
    "chat.js",
    "formats.js",
    "gguf.js",
    "maps.js",
    "signals.js",
    "split.js",
    "markdown.js",
    "catalogue.js",
    "demo.js",
    "edge.js",
    "doctor.js",
    "server.js",
    "integration.js",
    "hub.js",
    "chat-element.js",
    "prompt-api.js",
    "quality.js",
  ],
  ...["bench.js", "isolate.js"],
];
const nodeFiles = [
  ...["node.js", "node-worker.js", "node-thread.js"],
  ...["node-doctor.js", "node-quality.js", "batch.js", "cli.js"],
];
/** What bundlers take instead, for the reason that bundler.jsx tells. */
const copies = {
  "bundler.jsx": "src/bundler.jsx",
  "chat-element.jsx": "src/chat-element.jsx",
  "demo.jsx": "dist/demo.js",
  "doctor.jsx": "src/doctor.jsx",
  "quality.jsx": "src/quality.jsx",
};

const own = [
  ...["build.mjs", "flavour.mjs", "glue.mjs", "options.mjs"].map((name) => path.join(pkg, "scripts", name)),
  path.join(root, "scripts", "minified.mjs"),
];
const projects = ["tsconfig.json", "tsconfig.build.json"].map((name) => path.join(pkg, name));
/** Of what `import` of a .wasm gives, which tsc does not copy. */
const wasmTypes = path.join(pkg, "scripts", "wasm.d.ts");
const typed = [
  "index.d.ts",
  "demo.d.ts",
  "edge.d.ts",
  "doctor.d.ts",
  "server.d.ts",
  "integration.d.ts",
  "prompt-api.d.ts",
  "chat-element.d.ts",
  "quality.d.ts",
  "batch.d.ts",
];
/** What README leads to is packed with it. */
const papers = [
  ...["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE-MIT", "LICENSE-APACHE"],
  ...["benches/results", "docs", "docs/guide", "docs/reference", "docs/images"].flatMap((folder) =>
    readdirSync(path.join(root, folder))
      .filter((name) => /\.(md|png|svg)$/.test(name))
      .map((name) => `${folder}/${name}`),
  ),
];
/** What decides which variant of a kernel is fastest: measurements of other kernels say nothing. */
const kernels = hash(["src/kernels", "src/model/tune.rs"].map((name) => path.join(root, name))).slice(0, 16);
const sources = [path.join(pkg, "src"), path.join(pkg, "flavours.json"), npmLock, kernels];

const kinds = {
  async all() {
    await buildFlavours([...flavours, ...extras]);
    await buildBundles();
    await buildTypes();
    copyPapers();
    await buildClients();
  },
  async page() {
    // A server that isolates its pages gives them threads, unless there is one core: see wasm/pick.ts.
    const wanted = flavours.filter(({ threads }) => threads === availableParallelism() > 1);
    await buildFlavours(wanted);
    for (const flavour of [...flavours, ...extras]) if (!wanted.includes(flavour)) removeOutdated(flavour, dist);
    await ifChanged("page", {
      inputs: [...sources, ...own, path.join(dist, "glue")],
      outputs: pageFiles.map((name) => path.join(dist, name)),
      run: () => bundle("browser", forPages, dist),
    });
  },
  async bundles() {
    await buildBundles();
    await buildTypes();
    copyPapers();
  },
  async quick() {
    const quick = path.join(root, "target", "quick");
    mkdirSync(path.join(quick, "glue"), { recursive: true });
    await buildQuickly(
      flavours.find(({ name }) => name === "single-relaxed"),
      quick,
    );
    await bundle("node", forNode, quick);
  },
  async profile() {
    const to = path.join(profiled, "dist");
    mkdirSync(path.join(to, "glue"), { recursive: true });
    const wanted = flavours.filter(({ simd }) => simd === "relaxed");
    await eachAtOnce(wanted, availableParallelism(), (flavour) => buildFlavour(flavour, to, { names: true }));
    await Promise.all([bundle("browser", forPages, to, false), bundle("node", forNode, to, false)]);
    for (const name of ["package.json", "models"]) {
      cpSync(path.join(pkg, name), path.join(profiled, name), { recursive: true });
    }
    say("profile", "target/profile is a package with the names of its functions: see docs/guide/profiling.md");
  },
};

function copyPapers() {
  for (const folder of ["docs", "benches"]) rmSync(path.join(pkg, folder), { recursive: true, force: true });
  for (const name of papers) cpSync(path.join(root, name), path.join(pkg, name), { recursive: true });
}

async function buildFlavours(wanted) {
  mkdirSync(path.join(dist, "glue"), { recursive: true });
  await eachAtOnce(wanted, availableParallelism(), (flavour) => buildFlavour(flavour, dist));
}

async function buildBundles() {
  const absent = [...flavours, ...extras].filter(({ file }) => !existsSync(path.join(dist, file)));
  if (absent.length > 0) throw new Error(`pkg/dist has no ${absent[0].file}: \`make build\` builds it`);
  await ifChanged("bundles", {
    inputs: [...sources, ...own, path.join(dist, "glue")],
    outputs: [...pageFiles, ...nodeFiles, ...Object.keys(copies)].map((name) => path.join(dist, name)),
    async run() {
      await Promise.all([bundle("browser", forPages, dist), bundle("node", forNode, dist)]);
      chmodSync(path.join(dist, "cli.js"), 0o755);
      for (const [name, from] of Object.entries(copies)) cpSync(path.join(pkg, from), path.join(dist, name));
    },
  });
}

async function bundle(platform, groups, outdir, minify = true) {
  const common = {
    absWorkingDir: pkg,
    bundle: true,
    format: "esm",
    target: "es2022",
    // Node shows the line where an error was made: it must be one that people can read.
    // White space is left to terser: with it, esbuild takes the comments that bundlers read.
    minifySyntax: minify && platform === "browser",
    minifyIdentifiers: minify && platform === "browser",
    outdir,
    platform,
    define: { KERNELS: JSON.stringify(kernels) },
    logLevel: "warning",
  };
  const glue = glueIn(path.join(outdir, "glue"));
  say("bundles", `esbuild, for ${platform === "node" ? "Node" : "pages"}`);
  await Promise.all(
    groups.map(async ({ wholeOptions = false, ...group }) => {
      const plugins = [glue, ...(wholeOptions ? [] : [leanOptions]), ...(platform === "browser" ? [later] : [])];
      const { outputFiles } = await esbuild({ ...common, ...group, plugins, write: false });
      for (const { path: file, text } of outputFiles) {
        writeFileSync(file, platform === "browser" && minify ? await minified(text, group.format) : text);
      }
    }),
  );
}

/** What a page imports when it is used stays a file of its own. */
const later = {
  name: "later",
  setup({ onResolve }) {
    onResolve({ filter: /\/(hub|index|demo)\.ts$/ }, ({ kind, path: asked }) =>
      kind === "dynamic-import" ? { path: `./${path.basename(asked, ".ts")}.js`, external: true } : null,
    );
  },
};

/** Takes the glue from one folder. A build that is not there is left out, and an attempt to load it says so. */
function glueIn(folder) {
  return {
    name: "glue",
    setup({ onResolve, onLoad }) {
      // Builds for different instruction sets have the same glue, and one for threads does without: a bundle holds it once.
      const known = new Map();
      // What its comments say is in the types, and their letters are not all ASCII (scripts/minified.mjs says what that takes).
      const read = (file) => readFileSync(file, "utf8").replace(/^\/\/[^\n]*|^ *\/\*\*.*?\*\/\n/gms, "");
      onResolve({ filter: /\/dist\/glue\/[\w-]+\.js$/ }, ({ path: asked }) => {
        const file = path.join(folder, path.basename(asked));
        if (!existsSync(file)) return { path: path.basename(asked, ".js"), namespace: "absent" };
        const text = read(file);
        if (!known.has(text)) known.set(text, file);
        return { path: known.get(text) };
      });
      onLoad({ filter: /\/(single|threads)-[\w-]+\.js$/ }, ({ path: file }) => {
        const threads = path.join(folder, path.basename(file).replace("single", "threads"));
        const shared = existsSync(threads) && sharedGlue(read(threads));
        if (!shared) return null;
        if (file === threads) return { contents: shared };
        const contents = `export { createGlue } from ${JSON.stringify(`../../dist/glue/${path.basename(threads)}`)};\nexport const initialPages = 0;\n`;
        return serves(read(threads), read(file)) ? { contents, resolveDir: folder } : null;
      });
      onLoad({ filter: /.*/, namespace: "absent" }, ({ path: name }) => {
        const message = JSON.stringify(`${name} is not in this build: \`make build\` adds it`);
        const body = `throw new Error(${message});`;
        return { contents: `export const createGlue = () => { ${body} };\nexport const initialPages = 0;\n` };
      });
    },
  };
}

async function buildTypes() {
  await ifChanged("types", {
    inputs: [...sources, ...projects, wasmTypes, path.join(dist, "glue")],
    outputs: [...typed, "wasm.d.ts"].map((name) => path.join(dist, "types", name)),
    async run() {
      rmSync(path.join(dist, "types"), { recursive: true, force: true });
      await command("types", npmTool("tsc"), ["--project", path.join(pkg, "tsconfig.build.json")]);
      keepPublic(path.join(dist, "types"), typed);
      cpSync(wasmTypes, path.join(dist, "types", "wasm.d.ts"));
    },
  });
}

/** tsc declares every file that it has seen; only what the entries reach is for users to read. */
function keepPublic(dir, entries) {
  const reached = new Set(entries);
  for (const file of reached) {
    const text = readFileSync(path.join(dir, file), "utf8").replace(
      /(["'])(\.\.?\/[^"']*)\.ts\1/g,
      (_, quote, name) => {
        reached.add(path.join(path.dirname(file), `${name}.d.ts`));
        return `${quote}${name}.js${quote}`;
      },
    );
    writeFileSync(path.join(dir, file), text);
  }
  for (const file of readdirSync(dir, { recursive: true })) {
    if (file.endsWith(".ts") && !reached.has(file)) rmSync(path.join(dir, file));
  }
}

/** Runs the build script of each package in clients/ that has one. */
async function buildClients() {
  for (const folder of clients()) {
    const { name, scripts } = JSON.parse(readFileSync(path.join(root, folder, "package.json"), "utf8"));
    if (scripts?.build) await command(name, "npm", ["run", "build", `--workspace=${folder}`]);
  }
}

/** Each build ends in one long single-threaded link, so as many run at once as there are cores. */
async function eachAtOnce(items, count, run) {
  const queue = [...items];
  const failures = [];
  async function work() {
    for (let item = queue.shift(); item; item = queue.shift()) {
      await run(item).catch((error) => {
        failures.push(error);
        queue.length = 0;
      });
    }
  }
  await Promise.all(Array.from({ length: count }, work));
  if (failures.length > 0) throw failures[0];
}

try {
  const [kind = "all"] = process.argv.slice(2);
  if (!(kind in kinds)) throw new Error(`build.mjs builds ${Object.keys(kinds).join(", ")}, not ${kind}`);
  await kinds[kind]();
} catch (error) {
  // What went wrong has been printed by the tool that failed; this says which.
  console.error(error.message);
  process.exitCode = 1;
}
