/**
 * The table of settings in the guide, and its picture, as the command makes them: `ternlight quality` for each of its kinds of keys and
 * values.
 *
 *   node benches/settings.mjs MODEL TEXT --name NAME [--kv f32,f16,fp8,q8,q4,q2] [--tokens 2048] [--threads 2]
 *
 * writes the command, the machine and what it printed as results/DATE-settings-NAME.json, and docs/images/settings-NAME.svg; then
 * docs/scripts/figures.mjs puts both into the guide. Needs a built package; speeds on a machine that does nothing else.
 */
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { cpus, loadavg } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    name: { type: "string" },
    kv: { type: "string", default: "f32,f16,fp8,q8,q4,q2" },
    tokens: { type: "string", default: "2048" },
    threads: { type: "string", default: "2" },
  },
});
const [model, text] = positionals;
const inRoot = (name) => fileURLToPath(new URL(`../${name}`, import.meta.url));
const loadBefore = loadavg()[0];
const flags = ["--kv", values.kv, "--tokens", values.tokens, "--threads", values.threads];
const plot = inRoot(`docs/images/settings-${values.name}.svg`);
const args = [inRoot("pkg/dist/cli.js"), "quality", model, text, ...flags, "--plot", plot, "--json"];
const report = JSON.parse(execFileSync(process.execPath, args, { maxBuffer: 2 ** 28, stdio: ["ignore", "pipe", "inherit"] }));
const date = new Date().toISOString();
const machine = { cpu: cpus()[0].model, cores: cpus().length, node: process.version, loadBefore, loadAfter: loadavg()[0] };
const shown = (name) => (/[/\\]/.test(name) ? path.basename(name) : name);
const command = ["ternlight", "quality", shown(model), shown(text), ...flags].join(" ");
const { window, reference, rows } = report;
const file = inRoot(`benches/results/${date.slice(0, 10)}-settings-${values.name}.json`);
writeFileSync(file, `${JSON.stringify({ date, machine, command, window, reference, rows })}\n`);
console.log(file);
