/**
 * From Rust to one module of the package: cargo → wasm-bindgen → wasm-opt → glue. Every file that decides what comes
 * out is in `recipe`, and a change of one builds all modules anew; bundles and types are build.mjs's.
 */
import { spawn } from "node:child_process";
import { appendFileSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { cargo, root, target, targetDir } from "./cargo.mjs";
import { buildGlue, shortImports } from "./glue.mjs";
import { mend } from "./mend.mjs";
import { ordered } from "./order.mjs";
import { ifChanged, isCurrent } from "./stamps.mjs";

const pkg = fileURLToPath(new URL("../", import.meta.url));
const bindgenTool = path.join(root, ".cache", "tools", "build", "debug", "bindgen");

/** A tool of the npm packages, which npm installs at the root of the workspace. */
export const npmTool = (name) => path.join(root, "node_modules", ".bin", name);

/** The versions of the npm packages, binaryen's among them. */
export const npmLock = path.join(root, "package-lock.json");

const rust = ["Cargo.toml", "Cargo.lock", "rust-toolchain.toml"].map((name) => path.join(root, name));
export const recipe = ["cargo.mjs", "flavour.mjs", "glue.mjs", "mend.mjs", "order.mjs"].map((name) =>
  path.join(pkg, "scripts", name),
);

/** What a flavour is made from and what comes out, in the form that `ifChanged` takes. */
function step(flavour, dist) {
  const { name, package: crate = "ternlight" } = flavour;
  // The converter is built on the engine's crate.
  const folders = { ternlight: ["src", "channel"], "ternlight-convert": ["src", "convert"] }[crate] ?? [name];
  return {
    inputs: [...folders.map((folder) => path.join(root, folder)), ...rust, ...recipe, npmLock, JSON.stringify(flavour)],
    outputs: [path.join(dist, flavour.file), path.join(dist, "glue", `${name}.js`)],
  };
}

/** Builds a flavour into `dist`, unless it is there. With `names` the module tells what its functions are called; its code is the same. */
export async function buildFlavour(flavour, dist, { names = false } = {}) {
  const { inputs, outputs } = step(flavour, dist);
  const stamp = names ? `profile-${flavour.name}` : flavour.name;
  await ifChanged(stamp, { inputs, outputs, run: () => make(flavour, dist, names) });
}

/** Removes what an earlier version of the sources left of a flavour: parts of two versions must not meet. */
export function removeOutdated(flavour, dist) {
  const { inputs, outputs } = step(flavour, dist);
  if (!isCurrent(flavour.name, { inputs, outputs })) for (const file of outputs) rmSync(file, { force: true });
}

async function make(flavour, dist, names) {
  const { name } = flavour;
  const bindgen = await compile(flavour, []);
  const optimised = path.join(targetDir(flavour), names ? "named.wasm" : "optimised.wasm");
  const dropped = (flavour.drop ?? []).map((names) => `--remove-exports=${names}`);
  // Each time finds more. Small functions, and those with one caller, are for LLVM to inline, which knows the loops: a function that is
  // kept apart on purpose stays so, and modules are 1 % smaller.
  const inlining = ["--flexible-inline-max-function-size=10", "--one-caller-inline-max-function-size=0"];
  // Offsets below 1 kB go into loads and stores: no object lies there, only the end of the stack. It is another 1 %.
  const passes = [...dropped, "-O3", "-O3", "-O3", ...inlining, "--low-memory-unused", ...kept(names)];
  const input = path.join(bindgen, "ternlight_bg.wasm");
  await command(name, npmTool("wasm-opt"), [...passes, ...features(flavour), `--output=${optimised}`, input]);
  await finish(flavour, optimised, bindgen, dist, { names, arrange: ordered });
}

/** Binaryen drops the names of functions unless it is told to keep them. */
const kept = (names) => (names ? ["-g"] : []);

/**
 * A flavour in seconds instead of minutes, for the inner loop: compiled in parts that cargo keeps, without the
 * optimisation over the whole program or binaryen's. It computes the same bits, more slowly.
 */
export async function buildQuickly(flavour, dist) {
  const quick = { ...flavour, directory: `quick-${flavour.name}` };
  const { inputs, outputs } = step(flavour, dist);
  await ifChanged(quick.directory, {
    inputs,
    outputs,
    async run() {
      const settings = { lto: false, "codegen-units": 16, incremental: true };
      const config = Object.entries(settings).map(([key, value]) => `--config=profile.release.${key}=${value}`);
      const bindgen = await compile(quick, config);
      await finish(quick, path.join(bindgen, "ternlight_bg.wasm"), bindgen, dist);
    },
  });
}

/** Compiles a flavour and answers with the folder that then holds `ternlight_bg.wasm` and its glue. */
async function compile(flavour, config) {
  const { args, env } = cargo(flavour, "build", "--release", "--lib", ...config);
  await command(flavour.name, "cargo", args, env);
  const bindgen = path.join(targetDir(flavour), "bindgen");
  const file = `${(flavour.package ?? "ternlight").replace("-", "_")}.wasm`;
  await command(flavour.name, bindgenTool, [path.join(targetDir(flavour), target, "release", file), bindgen]);
  return bindgen;
}

/** Mends what the tools got wrong, names the module, and writes it and its glue into `dist`. */
async function finish(flavour, module, bindgen, dist, { names = false, arrange = (wat) => wat } = {}) {
  const { name } = flavour;
  const file = path.join(dist, flavour.file);
  const wat = path.join(targetDir(flavour), names ? "named.wat" : "optimised.wat");
  await command(name, npmTool("wasm-dis"), [...features(flavour), `--output=${wat}`, module]);
  writeFileSync(wat, mend(arrange(shortImports(readFileSync(wat, "utf8")), readFileSync(module))));
  await command(name, npmTool("wasm-as"), [...features(flavour), ...kept(names), `--output=${file}`, wat]);
  appendFileSync(file, customSection("flavour", name));
  await buildGlue(flavour, bindgen, path.join(dist, "glue"));
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

/** Runs a program, with each line that it prints under the name of what it is for, and says how long it took. */
export function command(label, program, args, env = process.env) {
  const what =
    `${path.basename(program)} ${args.find((arg) => !arg.startsWith("-") && !arg.includes("/")) ?? ""}`.trim();
  const start = performance.now();
  say(label, what);
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
    child.on("close", (code) => {
      if (code !== 0) return reject(new Error(`${label}: ${program} ended with ${code}`));
      say(label, `${what} took ${((performance.now() - start) / 1000).toFixed(1)} s`);
      resolve();
    });
  });
}

export function say(label, line) {
  console.error(`${label.padEnd(15)} ${line}`);
}
