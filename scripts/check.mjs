/**
 * Runs lints and tests, and says of each part how long it took:
 *
 *     node scripts/check.mjs [lint|test]… [--show]
 *
 * Parts run at the same time, one in each lane, most of them in a folder of cargo's of their own; what a part prints is in
 * target/logs, and is shown where it fails (always with --show). All parts run, whatever fails, except for those that
 * need one that failed. The last line is `N passed, N failed`.
 */
import { existsSync } from "node:fs";
import { clients } from "../pkg/scripts/clients.mjs";
import { close, notRun, report, root, runPart } from "./parts.mjs";

const bin = (name) => `node_modules/.bin/${name}`;
const node24 = "pkg/test/hosts/node_modules/node24/bin/node";
const forFlavour = (flavour, ...args) => ["node", "pkg/scripts/cargo.mjs", flavour, ...args];
const clippy = (...args) => ["clippy", "--locked", "--all-targets", ...args, "--", "-D", "warnings"];

/** What every part needs. */
const tools = { name: "tools", command: ["scripts/setup.sh", "rust", "npm"] };
/** It downloads and unpacks, which leaves the cores to what compiles beside it. */
const hosts = {
  kind: "test",
  name: "runtimes and browsers",
  command: [
    "scripts/setup.sh",
    "test-runner",
    "hosts",
    "clients",
    "chromium",
    "firefox",
    "webkit",
    "redis",
    "postgresql",
    "operations",
    "python-clients",
  ],
};

/** Lanes run side by side, the parts of a lane one after the other. */
function lanes() {
  const native = [
    { kind: "lint", name: "rustfmt", command: ["cargo", "fmt", "--all", "--check"] },
    { kind: "lint", name: "clippy", command: ["cargo", ...clippy("--workspace")] },
    { kind: "lint", name: "clippy with threads", command: ["cargo", ...clippy("--features", "threads")] },
    // All packages in one call: two would compile the engine with different features, twice.
    { kind: "test", name: "Rust", command: ["cargo", "test", "--locked", "--workspace", "--features", "threads"] },
  ];
  const wasm = [
    { kind: "all", name: "build", command: ["node", "pkg/scripts/build.mjs"] },
    // They need the glue's types, so they come after the build.
    { kind: "lint", name: "biome", command: [bin("biome"), "ci", "--colors=off"], needs: ["build"] },
    ...["pkg", ...clients()]
      .filter((folder) => existsSync(`${root}${folder}/tsconfig.json`))
      .map((folder) => ({
        kind: "lint",
        name: `types of ${folder}`,
        command: [bin("tsc"), "--project", folder],
        needs: ["build"],
      })),
    // It fails on a link that leads nowhere.
    { kind: "test", name: "site of the documents", command: ["make", "docs"], needs: ["build", hosts.name] },
    { kind: "lint", name: "commit subjects", command: ["scripts/check_commits.sh"] },
  ];
  // Where it meets a folder in which the build is at work, cargo waits.
  const others = [
    hosts,
    // The tools share flags, and are linted in one folder.
    ...[["threads-relaxed"], ["convert", "--package=ternlight-constrain"]].map(([flavour, ...args]) => ({
      kind: "lint",
      name: `clippy for ${flavour}`,
      command: forFlavour(flavour, "clippy", ...args, "--all-targets", "--", "-D", "warnings"),
    })),
    // Without threads there is less, and nothing else: the library's own tests suffice, as they run here. The pool's
    // crate has no Node support (pkg/src/wasm/threads.ts), so builds with threads are tested as a package.
    ...["single-relaxed", "single-simd128"].map((flavour) => ({
      kind: "test",
      name: `Rust for ${flavour}, in Node 24`,
      command: forFlavour(flavour, "test", "--lib"),
      needs: [hosts.name],
    })),
  ];
  return [others, native, wasm];
}

/** With the machine for itself, because what hangs is found by time. */
const packageTests = {
  kind: "test",
  name: "package, page and command line",
  command: [node24, "pkg/test/all.mjs", "pkg/test/**/*.test.{ts,mjs}", "clients/*/test/**/*.test.{ts,mjs}"],
  needs: ["build", hosts.name],
};

const start = performance.now();
const show = process.argv.includes("--show");
const kinds = process.argv.slice(2).filter((name) => name !== "--show");
const wanted = ({ kind }) => kind === "all" || kinds.length === 0 || kinds.includes(kind);
const results = [];
/** By name, what resolves when a part has ended. */
const begun = new Map();

function run(part) {
  const ended = runAfter(part);
  begun.set(part.name, ended);
  return ended;
}

async function runAfter(part) {
  const needs = [tools.name, ...(part.needs ?? [])];
  await Promise.all(needs.filter((name) => name !== part.name).map((name) => begun.get(name)));
  const failed = results.find(({ name, failed }) => failed > 0 && needs.includes(name));
  if (!failed) console.log(`begins  ${part.name}`);
  const result = failed ? notRun(part, failed.name) : await runPart(part, { show });
  results.push(result);
  report(result);
}

await run(tools);
await Promise.all(
  lanes().map(async (lane) => {
    for (const part of lane.filter(wanted)) await run(part);
  }),
);
if (wanted(packageTests)) await run({ ...packageTests });
close(results, start);
