/**
 * How cargo is called for a flavour. The build uses it as a module; by hand and from the Makefile:
 *
 *     node pkg/scripts/cargo.mjs single-relaxed test --lib
 */
import { execFileSync, spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { homedir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";

export const root = fileURLToPath(new URL("../../", import.meta.url));
export const flavours = JSON.parse(readFileSync(new URL("../flavours.json", import.meta.url), "utf8"));
const single = { threads: false, simd: "simd128", targetFeatures: ["simd128"], cargoFeatures: [], buildStd: false };
const tool = { ...single, tool: true };
/** Built as the flavours are, but no engine: what a command of the program, or an option, needs besides. */
export const tools = [
  { ...tool, name: "convert", file: "convert.wasm", package: "ternlight-convert" },
  // Its library exports an interface for C that nobody calls, and the clock that it is given.
  {
    ...tool,
    name: "constrain",
    file: "constrain.wasm",
    package: "ternlight-constrain",
    small: true,
    drop: ["llg_*", "now"],
  },
];
export const target = "wasm32-unknown-unknown";

/** Every flavour keeps its own directory: other flags, other std, and both can build at once. */
export const targetDir = (flavour) => path.join(root, "target", "flavours", flavour.directory ?? flavour.name);

// rustc 1.95 no longer adds these by itself when `atomics` is on (rust-lang/rust#147225). The memory is imported so
// that the loader may give it the maximum that the model needs; here stands only the most that an import may have.
const sharedMemory = [
  "--shared-memory",
  "--import-memory",
  "--max-memory=4294967296",
  "--export=__wasm_init_tls",
  "--export=__tls_size",
  "--export=__tls_align",
  "--export=__tls_base",
];

// LLVM's own 225 copies what loads and plans a model into every caller, for 18 kB gzipped. What loops need inside them
// is marked `inline`, which raises its own limit. Much lower, and loops suffer that cannot be marked: at 10 Q4_K takes
// a tenth longer (AMD EPYC, family 25, model 17; `ternlight bench --shape 2b4t,layers=2 --type q4_k --threads 1`).
// Loops that LLVM writes out several times, more instructions of them by default, take 6 kB gzipped and are no faster: decode and
// prefill of 2-bit, 1-bit and 4-bit weights by turns, AMD EPYC (Zen 5), benches/results/kernels.md, "Loops written out".
const frugal = "-Cllvm-args=-inline-threshold=25 -unroll-partial-threshold=10";

// Where a panic arose in the sources takes 5 kB gzipped to say; its message stays.
const unlocated = "-Zlocation-detail=none";

export function cargo(flavour, command, ...args) {
  // Shared memory needs a std of its own to link; the others have one for its size, which nothing but a build asks for.
  const buildStd = flavour.buildStd && (command === "build" || (flavour.threads && command !== "clippy"));
  const rustflags = [
    `-Ctarget-feature=${flavour.targetFeatures.map((name) => `+${name}`).join(",")}`,
    ...(flavour.tool ? [] : [frugal, unlocated]),
    ...(flavour.threads ? sharedMemory.map((arg) => `-Clink-arg=${arg}`) : []),
    ...remapped(),
  ];
  return {
    args: [
      command,
      `--target=${target}`,
      `--target-dir=${targetDir(flavour)}`,
      `--package=${flavour.package ?? "ternlight"}`,
      `--features=${flavour.cargoFeatures.join(",")}`,
      "--locked",
      ...(flavour.small ? ['--config=profile.release.opt-level="z"'] : []),
      // Its sorts alone, one for every type that is sorted, would take 30 kB.
      ...(buildStd ? ["-Zbuild-std=std,panic_abort", "-Zbuild-std-features=optimize_for_size"] : []),
      ...args,
    ],
    env: {
      ...process.env,
      CARGO_ENCODED_RUSTFLAGS: rustflags.join("\x1f"),
      // `cargo test` runs in the first `node` that is found, and Node 20 knows no relaxed SIMD.
      CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUNNER: path.join(root, ".cache/tools/build/debug/wasm-bindgen-test-runner"),
      PATH: `${path.join(root, "pkg/test/hosts/node_modules/node24/bin")}:${process.env.PATH}`,
      // `-Z` options and the `atomics` target feature ask for it on a stable toolchain.
      ...(flavour.tool ? {} : { RUSTC_BOOTSTRAP: "1" }),
    },
  };
}

/** Panic messages name source files: by crate, not by where this machine keeps them. */
function remapped() {
  const cargoHome = process.env.CARGO_HOME ?? path.join(homedir(), ".cargo");
  const sysroot = execFileSync("rustc", ["--print", "sysroot"], { cwd: root, encoding: "utf8" }).trim();
  const from = { [path.join(cargoHome, "registry", "src")]: "crates", [sysroot]: "rust", [root]: "ternlight/" };
  return Object.entries(from).map(([prefix, name]) => `--remap-path-prefix=${prefix}=${name}`);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [name, command, ...rest] = process.argv.slice(2);
  const flavour = [...flavours, ...tools].find((row) => row.name === name);
  if (!flavour || !command) {
    console.error(
      `usage: node cargo.mjs ${[...flavours, ...tools].map((row) => row.name).join("|")} COMMAND [ARGUMENT]…`,
    );
    process.exit(2);
  }
  const { args, env } = cargo(flavour, command, ...rest);
  spawn("cargo", args, { cwd: root, env, stdio: "inherit" }).on("exit", (code) => process.exit(code ?? 1));
}
