/**
 * Makes the command line one file, with the engine and the demo model inside, by `bun build --compile` and `deno compile`:
 *
 *     node pkg/scripts/executables.mjs [bun] [deno] [--out FOLDER]      both, into target/executables
 *
 * It needs a built package and the runtimes of pkg/test/hosts. `deno compile` wants the runtime `denort` of the same version, which it
 * downloads from dl.deno.land, and which no package on npm has: DENORT_BIN names one that is there already.
 */
import { execFile } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs, promisify } from "node:util";
import { root } from "./cargo.mjs";
import { say } from "./flavour.mjs";

const run = promisify(execFile);
const pkg = path.join(root, "pkg");
const bin = (name) => path.join(pkg, "test", "hosts", "node_modules", ".bin", name);

/** In both runtimes a module is embedded as one where it is named, and everything else as the file that it is. */
const ENTRY = "main.mjs";
const modules = ["cli", "node-worker", "node-thread"].map((name) => `ternlight/dist/${name}.js`);

/** The command line for one runtime as a single executable; answers with its path. */
export async function makeExecutable(runtime, out) {
  const stage = mkdtempSync(path.join(tmpdir(), "ternlight-executable-"));
  try {
    const files = copyFiles(stage);
    const target = path.resolve(out, `ternlight-${runtime}${process.platform === "win32" ? ".exe" : ""}`);
    mkdirSync(path.dirname(target), { recursive: true });
    const args = { bun: bunArguments, deno: denoArguments }[runtime](target, files);
    await run(bin(runtime), args, { cwd: stage }).catch(({ stderr }) => {
      throw new Error(whyNot(stderr));
    });
    return target;
  } finally {
    rmSync(stage, { recursive: true, force: true });
  }
}

/** What the command line reads of its package, in the same folders; answers with the names. */
function copyFiles(stage) {
  const dist = readdirSync(path.join(pkg, "dist")).filter((name) => name.endsWith(".wasm"));
  const model = readdirSync(path.join(pkg, "models", "ternlight-demo")).filter((name) => !name.endsWith(".md"));
  const files = [
    "package.json",
    ...dist.map((name) => `dist/${name}`),
    ...model.map((name) => `models/ternlight-demo/${name}`),
  ].map((name) => `ternlight/${name}`);
  for (const name of [...modules, ...files])
    cpSync(path.join(pkg, path.relative("ternlight", name)), path.join(stage, name));
  // Bun names its entry after the executable. Modules that it imports by an address keep theirs, and their own addresses.
  writeFileSync(
    path.join(stage, ENTRY),
    `const cli = "./${modules[0]}";\nawait import(new URL(cli, import.meta.url).href);\n`,
  );
  return files;
}

/** In a line, of what a compiler printed. */
function whyNot(stderr) {
  const [denort] = /https:\/\/dl\.deno\.land\S+?denort\S+\.zip/.exec(stderr) ?? [];
  if (denort) return `there is no ${denort} to be had here; DENORT_BIN names a denort that is here`;
  return stderr.split("\n\nStack backtrace")[0].trim();
}

function bunArguments(target, files) {
  const asFiles = [
    "--asset-naming",
    "[dir]/[name].[ext]",
    ...[".json", ".safetensors"].flatMap((ext) => ["--loader", `${ext}:file`]),
  ];
  return [
    "build",
    "--compile",
    "--root",
    ".",
    ...asFiles,
    ...[ENTRY, ...modules, ...files].map((name) => `./${name}`),
    "--outfile",
    target,
  ];
}

function denoArguments(target, files) {
  const included = [...modules, ...files].flatMap((name) => ["--include", name]);
  // Files are read, models fetched and served, cores counted, the cache and results written.
  return ["compile", "--no-check", "--no-config", "--allow-all", ...included, "--output", target, ENTRY];
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: { out: { type: "string", default: path.join(root, "target", "executables") } },
  });
  for (const runtime of positionals.length > 0 ? positionals : ["bun", "deno"]) {
    if (!["bun", "deno"].includes(runtime)) throw new Error(`executables are made by bun and deno, not by ${runtime}`);
    try {
      say(runtime, await makeExecutable(runtime, values.out));
    } catch (error) {
      say(runtime, `not made: ${error.message}`);
      process.exitCode = 1;
    }
  }
}
