/**
 * The licences of everything that the package contains: crates that are linked into the wasm files and npm packages that are bundled,
 * in the versions of both lock files.
 *
 *     node pkg/scripts/notices.mjs            writes pkg/THIRD-PARTY-NOTICES
 *     node pkg/scripts/notices.mjs --check    fails where it is out of date, or a licence is not in deny.toml's list
 */
import { execFileSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

const pkg = fileURLToPath(new URL("../", import.meta.url));
const root = path.dirname(path.resolve(pkg));
const file = path.join(pkg, "THIRD-PARTY-NOTICES");
const read = (...names) => readFileSync(path.join(...names), "utf8");

const TARGET = "wasm32-unknown-unknown";
/** The package that an import names, of one line or several. */
const IMPORTED = /^(?:import .*?|\}) from "((?:@[\w.-]+\/)?[a-z][\w.-]*)["/]/gm;
/** Where a package leaves the choice, the first of these that it offers. */
const PREFERRED = ["MIT", "BSD-2-Clause", "BSD-3-Clause", "ISC", "Zlib", "Unicode-3.0", "Apache-2.0"];
/** How a licence's own file is called, where a package has several. */
const FILES = {
  MIT: /MIT/i,
  "Apache-2.0": /APACHE/i,
  "Unicode-3.0": /UNICODE/i,
  Zlib: /ZLIB/i,
  "BSD-2-Clause": /BSD/i,
  "BSD-3-Clause": /BSD/i,
};

/** Crates that are linked: normal dependencies of this workspace's crates, without what only runs while they are compiled. */
export function crates() {
  const args = ["metadata", "--locked", "--format-version=1", `--filter-platform=${TARGET}`, "--all-features"];
  const options = { cwd: root, encoding: "utf8", maxBuffer: 2 ** 28 };
  const { packages, resolve, workspace_members } = JSON.parse(execFileSync("cargo", args, options));
  const byId = new Map(packages.map((one) => [one.id, one]));
  const nodes = new Map(resolve.nodes.map((node) => [node.id, node]));
  const found = new Set();
  function visit(id) {
    if (found.has(id) || byId.get(id).targets.some(({ kind }) => kind.includes("proc-macro"))) return;
    found.add(id);
    for (const { pkg: dependency, dep_kinds } of nodes.get(id).deps) {
      if (dep_kinds.some(({ kind }) => kind === null)) visit(dependency);
    }
  }
  for (const id of workspace_members) visit(id);
  // Crates without a source lie in this repository.
  const others = [...found].filter((id) => byId.get(id).source !== null);
  return others.map((id) => {
    const { name, version, license, manifest_path, repository, authors } = byId.get(id);
    return { name, version, licence: license, folder: path.dirname(manifest_path), url: repository, authors };
  });
}

/** npm packages that the sources import, and what those need. */
export function npmPackages() {
  const lock = JSON.parse(read(root, "package-lock.json")).packages;
  const names = new Set();
  const visit = (name) => {
    if (names.has(name)) return;
    names.add(name);
    for (const dependency of Object.keys(lock[`node_modules/${name}`]?.dependencies ?? {})) visit(dependency);
  };
  for (const source of readdirSync(path.join(pkg, "src"), { recursive: true })) {
    if (!source.endsWith(".ts")) continue;
    for (const [, name] of read(pkg, "src", source).matchAll(IMPORTED)) {
      // An entry may name the package itself.
      if (name !== "ternlight") visit(name);
    }
  }
  return [...names].map((name) => {
    // npm puts a workspace's packages at its root, or beside the one that needs another version.
    const folder = [pkg, root].map((at) => path.join(at, "node_modules", name)).find((at) => existsSync(at));
    if (!folder) throw new Error(`${name} is not installed`);
    const { version, license, repository, author } = JSON.parse(read(folder, "package.json"));
    const locked = lock[`node_modules/${name}`]?.version;
    if (version !== locked) throw new Error(`${name} ${version} is installed, the lock file has ${locked}`);
    const url = (typeof repository === "string" ? repository : (repository?.url ?? "")).replace(/^git\+|\.git$/g, "");
    return { name, version, licence: license, folder, url, authors: [author?.name ?? author ?? ""] };
  });
}

/** The licences of an SPDX expression that apply: all of an AND, the preferred one of an OR. */
export function chosen(expression) {
  return expression.split(/\s+AND\s+/).map((part) => {
    const options = part.replace(/[()]/g, "").split(/\s+OR\s+|\//);
    const best = PREFERRED.find((licence) => options.includes(licence));
    if (!best) throw new Error(`no licence of "${expression}" is known here`);
    return best;
  });
}

const allowed = () => {
  const [, list] = /^allow = \[([^\]]*)\]/m.exec(read(root, "deny.toml"));
  return [...list.matchAll(/"([^"]+)"/g)].map(([, name]) => name);
};

/** What a package says of its licence in files; without any, the licence's own words. */
function textsOf({ name, licence, folder, authors }) {
  const files = readdirSync(folder).filter((one) => /^(licen[cs]e|copying|notice)/i.test(one));
  const texts = chosen(licence).flatMap((one) => {
    const own = files.filter((file) => FILES[one]?.test(file));
    const plain = files.filter((file) => /^(licen[cs]e|copying)(\.\w+)?$/i.test(file));
    const [first] = [...own, ...plain];
    if (first) return [read(folder, first)];
    if (one !== "MIT") throw new Error(`${name} has no text of its licence ${one}`);
    const holder = authors.map((author) => author.replace(/ *<.*>/, "")).join(", ") || `the authors of ${name}`;
    return [read(root, "LICENSE-MIT").replace(/^Copyright .*$/m, `Copyright (c) ${holder}`)];
  });
  const more = files.filter((file) => /notice|third-party/i.test(file)).map((file) => read(folder, file));
  return [...texts, ...more].map((text) => text.replace(/\r\n/g, "\n").trim());
}

/** Is linked into each wasm file as well, from the toolchain and not from a lock file. */
function standardLibrary() {
  const [, version] = /^channel = "(.*)"/m.exec(read(root, "rust-toolchain.toml"));
  const text = read(root, "LICENSE-MIT").replace(/^Copyright .*$/m, "Copyright (c) The Rust Project Contributors");
  return {
    title: `Rust standard library ${version} — MIT OR Apache-2.0 — https://www.rust-lang.org`,
    texts: [text.trim()],
  };
}

export function notices() {
  const list = [...npmPackages(), ...crates()];
  const permitted = allowed();
  for (const { name, licence } of list) {
    const refused = chosen(licence ?? "none").filter((one) => !permitted.includes(one));
    if (refused.length > 0) throw new Error(`${name}: deny.toml does not allow ${refused.join(", ")}`);
  }
  const entries = list
    .sort((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : a.version < b.version ? -1 : 1))
    .map((one) => ({
      title: `${one.name} ${one.version} — ${one.licence}${one.url ? ` — ${one.url}` : ""}`,
      texts: textsOf(one),
    }));
  entries.push(standardLibrary());
  // Those with the same words share them.
  const groups = new Map();
  for (const { title, texts } of entries) {
    const text = texts.join("\n\n");
    groups.set(text, [...(groups.get(text) ?? []), title]);
  }
  const line = "-".repeat(80);
  const parts = [...groups].map(([text, titles]) => `${line}\n${titles.join("\n")}\n${line}\n\n${text}\n`);
  return `This package contains parts of the following projects, each under the terms that follow its name.\n\n${parts.join("\n")}`;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const text = notices();
  if (process.argv.includes("--check")) {
    let found = "";
    try {
      found = readFileSync(file, "utf8");
    } catch {
      // As if it were empty.
    }
    if (found !== text) {
      console.error("pkg/THIRD-PARTY-NOTICES is out of date: node pkg/scripts/notices.mjs writes it");
      process.exit(1);
    }
  } else writeFileSync(file, text);
}
