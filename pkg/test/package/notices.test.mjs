/** The licences of what is shipped: named with their texts, in the tarball, and as the lock files have them. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { chosen, notices } from "../../scripts/notices.mjs";

const pkg = fileURLToPath(new URL("../../", import.meta.url));
const root = path.join(pkg, "..");
const written = readFileSync(path.join(pkg, "THIRD-PARTY-NOTICES"), "utf8");

/** The text under a project's name. */
function textOf(name, version) {
  const sections = written.split(/^-{80}$/m);
  const at = sections.findIndex((section) =>
    section.split("\n").some((line) => line.startsWith(`${name} ${version} — `)),
  );
  assert.ok(at > 0, `${name} ${version} is not named`);
  return sections[at + 1];
}

test("the notices are those of the lock files", () => {
  assert.ok(notices() === written, "out of date: node pkg/scripts/notices.mjs writes them");
});

test("every package in a bundle is named with its licence", async () => {
  const entries = readdirSync(path.join(pkg, "src")).filter((name) => name.endsWith(".ts"));
  const { metafile } = await build({
    absWorkingDir: pkg,
    entryPoints: [...entries.map((name) => `src/${name}`), "src/cli/main.ts", "src/bench/page.ts"],
    outdir: "dist",
    bundle: true,
    write: false,
    metafile: true,
    platform: "node",
    format: "esm",
    logLevel: "silent",
  });
  const bundled = new Map();
  for (const input of Object.keys(metafile.inputs)) {
    const [, folder, name] = /^(.*node_modules\/((?:@[^/]+\/)?[^/]+))\//.exec(input) ?? [];
    if (name) bundled.set(name, path.resolve(pkg, folder));
  }
  assert.ok(bundled.size >= 2, "there are some");
  for (const [name, folder] of bundled) {
    const { version } = JSON.parse(readFileSync(path.join(folder, "package.json"), "utf8"));
    assert.ok(textOf(name, version).includes(readFileSync(path.join(folder, "LICENSE"), "utf8").trim()), name);
  }
});

test("every crate that is linked is named with its licence", () => {
  const args = ["tree", "--workspace", "--locked", "--all-features", "--target=wasm32-unknown-unknown"];
  args.push("--edges=normal,no-proc-macro", "--prefix=none", "--no-dedupe", "--format={p}|{l}");
  const lines = execFileSync("cargo", args, { cwd: root, encoding: "utf8" }).split("\n");
  const crates = new Set(lines.filter((line) => line && !line.includes(root.replace(/\/$/, ""))));
  assert.ok(crates.size > 20 && [...crates].some((line) => line.startsWith("llguidance ")), "there are some");
  for (const line of crates) {
    const [, name, version, licence] = /^(\S+) v(\S+?)(?: .*)?\|(.*)$/.exec(line);
    const text = textOf(name, version);
    for (const one of chosen(licence)) {
      const words = { MIT: /Permission is hereby granted/, "Apache-2.0": /Apache License/, Zlib: /as-is/ };
      assert.match(text, words[one] ?? /Redistribution and use|UNICODE LICENSE/i, `${name}: ${one}`);
    }
  }
});

test("a licence that nobody has looked at is refused", () => {
  assert.deepEqual(chosen("Zlib OR Apache-2.0 OR MIT"), ["MIT"]);
  assert.deepEqual(chosen("(MIT OR Apache-2.0) AND Unicode-3.0"), ["MIT", "Unicode-3.0"]);
  assert.throws(() => chosen("GPL-3.0-only"), /no licence of "GPL-3\.0-only" is known here/);
  assert.throws(() => chosen("MIT AND SSPL-1.0"), /no licence of/);
});

test("the notices are in the tarball", () => {
  const pack = execFileSync("npm", ["pack", "--dry-run", "--json", "--ignore-scripts"], { cwd: pkg, encoding: "utf8" });
  const [{ files }] = JSON.parse(pack);
  assert.ok(files.some(({ path: name }) => name === "THIRD-PARTY-NOTICES"));
});

test("nothing is built from versions that no lock file has", () => {
  const scripts = readdirSync(path.join(root, "scripts")).filter((name) => /\.(sh|mjs)$/.test(name));
  const commands = ["Makefile", ...scripts.map((name) => `scripts/${name}`)]
    .flatMap((name) =>
      readFileSync(path.join(root, name), "utf8")
        .replaceAll("\\\n", " ")
        .split(/\n|;|&&|\|\|/),
    )
    // In a shell, and as a list of words.
    .filter((command) =>
      /^\s*cargo (\+\S+ )?(install|build|test|clippy|check|run)\b|(\bcargo\("[^"]*"|"cargo"), "(build|test|clippy|check|run)"/.test(
        command,
      ),
    );
  assert.ok(commands.length > 3);
  for (const command of commands) assert.match(command, /--locked/, command);
});
