/**
 * From Rust and TypeScript to what `npm pack` takes: cargo → wasm-bindgen → wasm-opt → glue once per flavour, then the
 * bundles and the types. What has not changed is not built again.
 */
import { spawn } from "node:child_process";
import {
  appendFileSync,
  chmodSync,
  cpSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { availableParallelism } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { build as esbuild } from "esbuild";
import { cargo, tools as extras, flavours, root, target, targetDir } from "./cargo.mjs";
import { buildGlue } from "./glue.mjs";
import { mend } from "./mend.mjs";
import { leanOptions } from "./options.mjs";
import { ifChanged } from "./stamps.mjs";

const pkg = fileURLToPath(new URL("../", import.meta.url));
const dist = path.join(pkg, "dist");
const tool = (name) => path.join(pkg, "node_modules", ".bin", name);
const wasmBindgen = path.join(root, ".cache", "tools", "bin", "wasm-bindgen");

const rust = ["Cargo.toml", "Cargo.lock", "rust-toolchain.toml"].map((name) => path.join(root, name));
const recipe = ["build.mjs", "cargo.mjs", "glue.mjs", "mend.mjs"].map((name) => path.join(pkg, "scripts", name));
const projects = ["tsconfig.json", "tsconfig.build.json"].map((name) => path.join(pkg, name));
const tools = path.join(pkg, "package-lock.json");
const bundles = [
  "index.js",
  "demo.js",
  "bench.js",
  "edge.js",
  "doctor.js",
  "isolate.js",
  "node.js",
  "node-worker.js",
  "node-doctor.js",
  "worker.js",
  "cli.js",
];
/** Of what `import` of a .wasm gives, which tsc does not copy. */
const wasmTypes = path.join(pkg, "scripts", "wasm.d.ts");
const typed = ["index.d.ts", "demo.d.ts", "edge.d.ts", "doctor.d.ts"];
const papers = ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"];
const sources = [path.join(pkg, "src"), path.join(pkg, "flavours.json"), tools];

async function buildFlavour(flavour) {
  const out = (...names) => path.join(dist, ...names);
  const { name, package: crate = "ternlight" } = flavour;
  // The converter is built on the engine's crate.
  const folders = { ternlight: ["src"], "ternlight-convert": ["src", "convert"] }[crate] ?? [name];
  const own = folders.map((folder) => path.join(root, folder));
  await ifChanged(name, {
    inputs: [...own, ...rust, ...recipe, tools, JSON.stringify(flavour)],
    outputs: [out(flavour.file), out("glue", `${name}.js`)],
    async run() {
      const { args, env } = cargo(flavour, "build", "--release", "--lib");
      await command(name, "cargo", args, env);

      const bindgen = path.join(targetDir(flavour), "bindgen");
      const built = path.join(targetDir(flavour), target, "release", `${crate.replace("-", "_")}.wasm`);
      const asModule = ["--target=web", "--omit-default-module-path", "--remove-producers-section"];
      asModule.push("--out-name=ternlight");
      await command(name, wasmBindgen, [...asModule, `--out-dir=${bindgen}`, built]);

      const optimised = path.join(targetDir(flavour), "optimised.wasm");
      const input = path.join(bindgen, "ternlight_bg.wasm");
      const dropped = (flavour.drop ?? []).map((names) => `--remove-exports=${names}`);
      // Twice finds more; small functions are for LLVM to inline, which knows the loops.
      const passes = [...dropped, "-O3", "-O3", "--flexible-inline-max-function-size=10"];
      await command(name, tool("wasm-opt"), [...passes, ...features(flavour), `--output=${optimised}`, input]);
      const wat = path.join(targetDir(flavour), "optimised.wat");
      await command(name, tool("wasm-dis"), [...features(flavour), `--output=${wat}`, optimised]);
      writeFileSync(wat, mend(readFileSync(wat, "utf8")));
      await command(name, tool("wasm-as"), [...features(flavour), `--output=${out(flavour.file)}`, wat]);
      appendFileSync(out(flavour.file), customSection("flavour", name));

      await buildGlue(flavour, bindgen, out("glue"));
    },
  });
}

/** Tells an edge worker, which is given a module without its address, what that is. */
function customSection(name, text) {
  const content = [name.length, ...Buffer.from(name), ...Buffer.from(text)];
  return Uint8Array.from([0, content.length, ...content]);
}

/** Named, because binaryen would otherwise trust a section that earlier tools may have dropped. */
function features(flavour) {
  const names = ["simd", "bulk-memory", "nontrapping-float-to-int", "sign-ext", "mutable-globals"];
  names.push("reference-types", "multivalue");
  if (flavour.simd === "relaxed") names.push("relaxed-simd");
  if (flavour.threads) names.push("threads");
  return names.map((name) => `--enable-${name}`);
}

async function buildBundles() {
  await ifChanged("bundles", {
    inputs: [...sources, ...recipe, path.join(pkg, "scripts", "options.mjs"), path.join(dist, "glue")],
    outputs: [...bundles, "bundler.jsx", "demo.jsx", "doctor.jsx"].map((name) => path.join(dist, name)),
    async run() {
      const common = {
        absWorkingDir: pkg,
        bundle: true,
        format: "esm",
        target: "es2022",
        minify: true,
        outdir: "dist",
        logLevel: "warning",
        plugins: [leanOptions],
      };
      say("bundles", "esbuild");
      await Promise.all([
        esbuild({ ...common, platform: "browser", entryPoints: ["src/index.ts", "src/worker.ts", "src/demo.ts"] }),
        esbuild({ ...common, platform: "browser", entryPoints: [{ in: "src/bench/page.ts", out: "bench" }] }),
        esbuild({ ...common, platform: "browser", entryPoints: ["src/edge.ts", "src/doctor.ts"] }),
        esbuild({ ...common, platform: "browser", format: "iife", entryPoints: ["src/isolate.ts"] }),
        esbuild({
          ...common,
          platform: "node",
          entryPoints: ["src/node.ts", "src/node-worker.ts", "src/node-doctor.ts"],
        }),
        esbuild({
          ...common,
          platform: "node",
          // Its help comes from the whole table.
          plugins: [],
          entryPoints: [{ in: "src/cli/main.ts", out: "cli" }],
          banner: { js: "#!/usr/bin/env node" },
        }),
      ]);
      chmodSync(path.join(dist, "cli.js"), 0o755);
      cpSync(path.join(pkg, "src", "bundler.jsx"), path.join(dist, "bundler.jsx"));
      // For the reason that bundler.jsx tells.
      for (const name of ["demo", "doctor"]) cpSync(path.join(dist, `${name}.js`), path.join(dist, `${name}.jsx`));
    },
  });
}

async function buildTypes() {
  await ifChanged("types", {
    inputs: [...sources, ...projects, wasmTypes, path.join(dist, "glue")],
    outputs: [...typed, "wasm.d.ts"].map((name) => path.join(dist, "types", name)),
    async run() {
      rmSync(path.join(dist, "types"), { recursive: true, force: true });
      await command("types", tool("tsc"), ["--project", path.join(pkg, "tsconfig.build.json")]);
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

/** Runs a program, with each line it prints under the name of what it is for. */
function command(label, program, args, env = process.env) {
  say(
    label,
    `${path.basename(program)} ${args.find((arg) => !arg.startsWith("-") && !arg.includes("/")) ?? ""}`.trim(),
  );
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, { cwd: root, env, stdio: ["ignore", "pipe", "pipe"] });
    for (const stream of [child.stdout, child.stderr]) {
      let rest = "";
      stream.setEncoding("utf8").on("data", (text) => {
        const lines = (rest + text).split("\n");
        rest = lines.pop();
        // Two cargos take turns at the list of packages, and say so at every turn.
        for (const line of lines) if (!line.includes("Blocking waiting for file lock")) say(label, line);
      });
      stream.on("end", () => rest && say(label, rest));
    }
    child.on("error", (error) =>
      reject(new Error(`${program}: ${error.message} (\`make tools\` installs what is missing)`)),
    );
    child.on("close", (code) =>
      code === 0 ? resolve() : reject(new Error(`${label}: ${program} ended with ${code}`)),
    );
  });
}

function say(label, line) {
  console.error(`${label.padEnd(15)} ${line}`);
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
  mkdirSync(path.join(dist, "glue"), { recursive: true });
  await eachAtOnce([...flavours, ...extras], availableParallelism(), buildFlavour);
  await buildBundles();
  await buildTypes();
  for (const name of papers) cpSync(path.join(root, name), path.join(pkg, name));
} catch (error) {
  // What went wrong has been printed by the tool that failed; this says which.
  console.error(error.message);
  process.exitCode = 1;
}
