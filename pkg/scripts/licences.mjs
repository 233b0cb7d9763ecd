/**
 * What `make licences` runs: the licences of all that is shipped, which needs no network, and known vulnerabilities, where a database
 * of them can be reached. What could not be checked is said.
 */
import { spawnSync } from "node:child_process";
import path from "node:path";
import { fileURLToPath } from "node:url";

const pkg = fileURLToPath(new URL("../", import.meta.url));
const root = path.resolve(pkg, "..");
let failed = false;

function say(what, how) {
  console.error(`${what.padEnd(24)} ${how}`);
}

function run(program, args, cwd = root) {
  const { status, stdout, stderr, error } = spawnSync(program, args, { cwd, encoding: "utf8" });
  return { status: error ? null : status, stdout, stderr };
}

function judge(what, { status, stdout, stderr }) {
  say(what, status === 0 ? "in order" : "FAILED");
  if (status === 0) return;
  console.error(stdout + stderr);
  failed = true;
}

judge("licences and notices", run(process.execPath, [path.join(pkg, "scripts", "notices.mjs"), "--check"]));

if (run("cargo", ["deny", "--version"]).status === 0) {
  judge("cargo deny", run("cargo", ["deny", "--workspace", "--locked", "check", "licenses", "bans", "sources"]));
  // Its database is a repository: where that cannot be fetched, the one that is there is used, if any is.
  if (run("cargo", ["deny", "fetch", "db"]).status === 0)
    judge("crates' advisories", run("cargo", ["deny", "--workspace", "check", "advisories"]));
  else say("crates' advisories", "not checked: their database cannot be reached");
} else say("cargo deny", "not checked: it is not installed (cargo install cargo-deny --locked)");

const audit = run("npm", ["audit", "--json"], pkg);
let report = {};
try {
  report = JSON.parse(audit.stdout);
} catch {
  // Nothing was answered.
}
const found = report.metadata?.vulnerabilities;
if (!found) say("npm's advisories", "not checked: the registry does not answer");
else if (found.high + found.critical === 0) say("npm's advisories", `in order (${found.total} below high)`);
else judge("npm's advisories", { status: 1, stdout: JSON.stringify(report.vulnerabilities, null, 2), stderr: "" });

process.exit(failed ? 1 : 0);
