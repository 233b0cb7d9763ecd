/**
 * The inner loop: what a small change needs, in under 3 minutes on two cores (half a minute, mostly). Only the first run,
 * after `make build`, takes longer: it compiles what later ones keep.
 *
 *     node scripts/quick.mjs [BASE]      what changed since the commit BASE (HEAD), with files that git does not know yet
 *
 * Rust: format, clippy and the library's tests, natively and without threads; one wasm build without optimisation over
 * the whole program, and a smoke run of it in Node.
 * TypeScript: biome, types, bundles, and those tests in Node that reach a changed file or belong to its room.
 *
 * Left out, and `make ok` has it: other wasm flavours and threads, Rust's integration, golden and documentation tests,
 * clippy for wasm, the packed package, bundlers, browsers, Deno, Bun and Node 20, clients/. TypeScript's tests run with
 * the wasm modules that `make build` has left, even if Rust has changed since.
 */
import { execFileSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { close, notRun, report, root, runPart } from "./parts.mjs";

const node24 = "pkg/test/hosts/node_modules/node24/bin/node";
const bin = (name) => `node_modules/.bin/${name}`;
const git = (...args) => execFileSync("git", args, { cwd: root, encoding: "utf8" }).split("\n").filter(Boolean);

/** Tests of a room are in the folder of its name, except for these. */
const testsOf = {
  cache: ["source/cache.test.ts"],
  host: ["api/"],
  options: ["api/", "cli/usage.test.ts"],
  platform: ["api/lifecycle.test.ts", "api/load.test.ts", "wasm/"],
  rpc: ["rpc/", "api/abort.test.ts", "api/lifecycle.test.ts"],
  types: ["api/load.test.ts"],
};
/** In any case, as everything takes part in it. */
const always = "api/generation.test.ts";

/** The tests in Node for changed files of TypeScript, as paths from the root. */
function reachedTests(changed) {
  const folder = path.join(root, "pkg/test");
  const all = readdirSync(folder, { recursive: true }).filter(
    (name) => name.endsWith(".test.ts") && !name.startsWith("hosts"),
  );
  const rooms = new Set(changed.flatMap((file) => /^pkg\/src\/(\w+)\//.exec(file)?.[1] ?? []));
  const prefixes = [always, ...[...rooms].flatMap((room) => testsOf[room] ?? [`${room}/`])];
  const wanted = new Set(changed.map((file) => path.join(root, file)));
  return all
    .filter((name) => prefixes.some((prefix) => name.startsWith(prefix)) || reaches(path.join(folder, name), wanted))
    .map((name) => `pkg/test/${name}`)
    .sort();
}

/** Whether a file is among the wanted ones, or imports one by relative paths, directly or not. */
function reaches(file, wanted, seen = new Set()) {
  if (wanted.has(file)) return true;
  if (seen.has(file) || !existsSync(file)) return false;
  seen.add(file);
  const imports = readFileSync(file, "utf8").matchAll(/(?:from|import)\s*\(?\s*"(\.[^"]+)"/g);
  return Array.from(imports, ([, name]) => path.resolve(path.dirname(file), name)).some((next) =>
    reaches(next, wanted, seen),
  );
}

const start = performance.now();
const base = process.argv[2] || "HEAD";
const changed = [...git("diff", "--name-only", base), ...git("ls-files", "--others", "--exclude-standard")];
const rust = changed.some((file) => /\.rs$|(^|\/)Cargo\.(toml|lock)$/.test(file));
const script = changed.some((file) => /\.(ts|mjs|js|jsx|json)$/.test(file));
if (!rust && !script) {
  console.log(`no Rust or TypeScript has changed since ${base}; \`make quick BASE=HEAD~1\` takes the last commit too`);
  process.exit();
}

const results = [];
/** Runs parts in turn; after a failure of one that decides, the rest makes no sense. */
async function inTurn(parts) {
  let failed;
  for (const part of parts) {
    const result = failed ? notRun(part, failed) : await runPart(part);
    if (result.failed > 0 && part.decides) failed = part.name;
    results.push(result);
    report(result);
  }
}

const cargo = (name, ...args) => ({ name, command: ["cargo", ...args] });
const quickBuild = [
  { name: "one wasm build", decides: true, command: ["node", "pkg/scripts/build.mjs", "quick"] },
  { name: "smoke run", command: [node24, "pkg/test/smoke.mjs", "target/quick"] },
];
const native = [
  cargo("rustfmt", "fmt", "--all", "--check"),
  cargo("clippy", "clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"),
  cargo("Rust, the library's tests", "test", "--locked", "--lib"),
];
const typescript = [
  { name: "biome", command: [bin("biome"), "ci", "--colors=off"] },
  { name: "types", command: [bin("tsc"), "--project", "pkg"] },
  { name: "bundles", decides: true, command: ["node", "pkg/scripts/build.mjs", "bundles"] },
];

await inTurn([{ name: "tools", command: ["scripts/setup.sh", "rust", "npm", "hosts"] }]);
if (results[0].failed === 0) {
  if (rust) await Promise.all([inTurn(native), inTurn(quickBuild)]);
  if (script) {
    const tests = reachedTests(changed);
    const run = { name: `${tests.length} files of tests`, command: [node24, "pkg/test/all.mjs", ...tests] };
    await inTurn([...typescript, run]);
  }
}
close(results, start);
