/** Builds the package in the folder where it is started: one bundle that imports what its users install, and the types. */
import { cpSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { command, npmLock, npmTool } from "../../pkg/scripts/flavour.mjs";
import { ifChanged } from "../../pkg/scripts/stamps.mjs";

const folder = process.cwd();
const { name, peerDependencies = {} } = JSON.parse(readFileSync(path.join(folder, "package.json"), "utf8"));
const src = path.join(folder, "src");
const dist = path.join(folder, "dist");
const types = path.join(dist, "types");
const own = fileURLToPath(import.meta.url);
const projects = [path.join(folder, "tsconfig.json"), path.join(folder, "..", "tsconfig.json")];
/** Frameworks that render on servers want to know what runs in the page. */
const banner = "react" in peerDependencies ? { js: '"use client";' } : {};

await ifChanged(name.replace(/\W+/g, "-"), {
  inputs: [src, own, npmLock, path.join(folder, "package.json"), ...projects],
  outputs: [path.join(dist, "index.js"), path.join(types, "index.d.ts")],
  async run() {
    rmSync(dist, { recursive: true, force: true });
    await build({
      absWorkingDir: folder,
      entryPoints: ["src/index.ts"],
      outdir: dist,
      bundle: true,
      packages: "external",
      format: "esm",
      target: "es2022",
      banner,
      logLevel: "warning",
    });
    const emit = ["--noEmit", "false", "--declaration", "--emitDeclarationOnly", "--rootDir", src, "--outDir", types];
    // Without the tests, which need more than the package.
    const files = readdirSync(src, { recursive: true }).filter((file) => file.endsWith(".ts"));
    const project = path.join(folder, "tsconfig.build.json");
    writeFileSync(project, JSON.stringify({ extends: "./tsconfig.json", include: ["src"] }));
    await command(name, npmTool("tsc"), ["--project", project, ...emit]).finally(() => rmSync(project));
    for (const licence of ["LICENSE-MIT", "LICENSE-APACHE"])
      cpSync(path.join(folder, "..", "..", licence), path.join(folder, licence));
    for (const file of files) withJs(path.join(types, file.replace(/\.ts$/, ".d.ts")));
  },
});

/** Declarations name other modules as they are called in the package. */
function withJs(file) {
  const text = readFileSync(file, "utf8");
  writeFileSync(file, text.replace(/(["'])(\.\.?\/[^"']*)\.ts\1/g, "$1$2.js$1"));
}
