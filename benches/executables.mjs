/**
 * How soon a new process writes its first token, as a single executable and as `node cli.js`:
 *
 *   node benches/executables.mjs [--repeat 11]
 *
 * makes the executables that this machine can make, and starts each program with the demo model by turns, with their files in the
 * system's cache. A start's time ends with the first byte of the answer. Where the kernel lets the caches be dropped (root), the same
 * without them. Writes results/DATE-executables.json. Needs a built package and the runtimes of pkg/test/hosts. About two
 * minutes.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs";
import { cpus, loadavg, tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { makeExecutable } from "../pkg/scripts/executables.mjs";
import { median } from "./median.mjs";

const pkg = fileURLToPath(new URL("../pkg/", import.meta.url));
const cli = path.join(pkg, "dist", "cli.js");
const host = (name) => path.join(pkg, "test", "hosts", "node_modules", name);
const ask = ["run", "ternlight-demo", "-p", "Once upon a time", "--temp", "0", "-n", "1"];

async function first([program, ...args]) {
  const begun = performance.now();
  const child = spawn(program, [...args, ...ask], { stdio: ["ignore", "pipe", "ignore"] });
  const ended = once(child, "close");
  await Promise.race([once(child.stdout, "data"), ended]);
  const ms = performance.now() - begun;
  const [code] = await ended;
  if (code !== 0) throw new Error(`${[program, ...args, ...ask].join(" ")} ended with ${code}`);
  return ms;
}

/** Forgets files that were read; false where this may not be done. */
function dropCaches() {
  try {
    writeFileSync("/proc/sys/vm/drop_caches", "1");
    return true;
  } catch {
    return false;
  }
}

const { values } = parseArgs({ options: { repeat: { type: "string", default: "11" } } });
const repeat = Number(values.repeat);
const before = loadavg()[0];
const folder = mkdtempSync(path.join(tmpdir(), "ternlight-executables-"));
try {
  const programs = {
    "node cli.js": [host("node24/bin/node"), cli],
    "bun cli.js": [host("bun/bin/bun.exe"), cli],
    "deno run cli.js": [host("deno/deno"), "run", "--allow-all", "--no-config", cli],
  };
  const [bytes, absent] = [{}, {}];
  for (const runtime of ["bun", "deno"]) {
    try {
      const file = await makeExecutable(runtime, folder);
      programs[`executable by ${runtime}`] = [file];
      bytes[`executable by ${runtime}`] = statSync(file).size;
    } catch (error) {
      absent[`executable by ${runtime}`] = error.message;
      console.error(`executable by ${runtime}: ${error.message}`);
    }
  }
  const none = () => Object.fromEntries(Object.keys(programs).map((name) => [name, []]));
  const found = { cached: none(), dropped: dropCaches() ? none() : null };
  for (let turn = 0; turn <= repeat; turn++) {
    for (const [name, program] of Object.entries(programs)) {
      const ms = await first(program);
      // The first turn brings the files into the cache.
      if (turn > 0) found.cached[name].push(ms);
    }
  }
  if (found.dropped)
    for (let turn = 0; turn < Math.min(repeat, 5); turn++)
      for (const [name, program] of Object.entries(programs)) {
        dropCaches();
        found.dropped[name].push(await first(program));
      }
  console.log("| | MB | first token, ms | files not in the cache, ms |\n|---|--:|--:|--:|");
  for (const name of Object.keys(programs)) {
    const [size, dropped] = [bytes[name] ? (bytes[name] / 1e6).toFixed(0) : "", found.dropped ? median(found.dropped[name]).toFixed(0) : ""];
    console.log(`| ${name} | ${size} | ${median(found.cached[name]).toFixed(0)} | ${dropped} |`);
  }
  const machine = { cpu: cpus()[0].model, cores: cpus().length, node: process.version, loadBefore: before, loadAfter: loadavg()[0] };
  const date = new Date().toISOString();
  const file = new URL(`results/${date.slice(0, 10)}-executables.json`, import.meta.url);
  writeFileSync(file, `${JSON.stringify({ date, machine, settings: { repeat }, bytes, absent, firstMs: found })}\n`);
} finally {
  rmSync(folder, { recursive: true, force: true });
}
