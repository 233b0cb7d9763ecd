/**
 * Every row of results/README.md, one after another on a machine that does nothing else: `node benches/rows.mjs [PATTERN]` with Node
 * 22.18 or newer, a built package and the three browsers. Writes results/DATE-ROW.json and prints the table.
 */
import { spawn } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { openInFirefox, openInWebKit } from "../pkg/test/package/browsers.mjs";
import { start } from "../pkg/test/page/support.mjs";
import { isolation, serve } from "../scripts/serve.mjs";

const rows = {
  "b2b-chromium": { page: "shape=b2b&profile" },
  "b2b-firefox": { open: openInFirefox, shape: "b2b" },
  "b2b-webkit": { open: openInWebKit, shape: "b2b" },
  b2b: "--shape b2b",
  "b2b-512": "--shape b2b --prompt-tokens 512",
  "b2b-1thread": "--shape b2b --threads 1",
  "b2b-simd128": "--shape b2b --flavour simd128 --prompt-tokens 32",
  "b2b-batch4": "--shape b2b --batch 4 --prompt-tokens 16",
  "b2b-batch16": "--shape b2b --batch 16 --prompt-tokens 16",
  "b2b-ctx512-f16": "--shape b2b --ctx 512 --kv f16 --prompt-tokens 16",
  "b2b-ctx512-q8": "--shape b2b --ctx 512 --kv q8 --prompt-tokens 16",
  "b2b-ctx4096-f16": "--shape b2b --ctx 4096 --kv f16 --prompt-tokens 16 --warmup 0 --repeat 1",
  "b2b-ctx4096-q8": "--shape b2b --ctx 4096 --kv q8 --prompt-tokens 16 --warmup 0 --repeat 1",
  "b2b-q1_0-chromium": { page: "shape=b2b&type=q1_0&profile" },
  "b2b-q1_0": "--shape b2b --type q1_0",
  "2b4t": "--shape 2b4t",
  "138m-q1_0-chromium": { page: "shape=138m&type=q1_0&profile" },
  "138m-q1_0": "--shape 138m --type q1_0",
  "135m-chromium": { page: "shape=135m&profile" },
  "135m": "--shape 135m",
  "fairy-chromium": { page: "shape=fairy&prompt=64&decode=128&profile" },
  fairy: "--shape fairy --prompt-tokens 64 --decode 128",
  "hybrid-4b": "--shape qwen3.5-4b --decode 16 --warmup 0 --repeat 2",
  "hybrid-4b-int8": "--shape qwen3.5-4b --decode 16 --warmup 0 --repeat 2 --activations int8",
  "hybrid-4b-512": "--shape qwen3.5-4b --prompt-tokens 512 --warmup 0 --repeat 1",
  "hybrid-4b-1thread": "--shape qwen3.5-4b --prompt-tokens 32 --decode 16 --warmup 0 --repeat 2 --threads 1",
  "hybrid-4b-q1_0": "--shape qwen3.5-4b --type q1_0 --embedding-type q1_0 --warmup 0 --repeat 2",
  "hybrid-27b": "--shape bonsai27b --prompt-tokens 32 --decode 8 --warmup 0 --repeat 2",
  "hybrid-27b-1thread": "--shape bonsai27b --prompt-tokens 16 --decode 8 --warmup 0 --repeat 2 --threads 1",
  "hybrid-27b-ternary": "--shape ternary27b --prompt-tokens 32 --decode 8 --warmup 0 --repeat 2",
  "hybrid-27b-ternary-1thread": "--shape ternary27b --prompt-tokens 16 --decode 4 --warmup 0 --repeat 2 --threads 1",
  "hybrid-4b-chromium": { page: "shape=qwen3.5-4b&prompt=64&decode=16&repeat=2&profile" },
  "hybrid-27b-chromium": { page: "shape=bonsai27b&prompt=32&decode=8&repeat=2&profile" },
  "hybrid-27b-ternary-chromium": { page: "shape=ternary27b&prompt=32&decode=8&repeat=2&profile" },
};

async function inNode(args) {
  const cli = fileURLToPath(new URL("../pkg/dist/cli.js", import.meta.url));
  const usual = { "--threads": "2", "--repeat": "3" };
  const rest = Object.entries(usual).filter(([flag]) => !args.includes(flag));
  const child = spawn(process.execPath, [cli, "bench", ...args.split(" "), ...rest.flat(), "--profile", "--json"], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const chunks = await child.stdout.toArray();
  const report = JSON.parse(Buffer.concat(chunks).toString());
  if (report.error) throw new Error(report.error.message);
  return report;
}

async function inChromium(query) {
  const demo = await start();
  try {
    const page = await demo.browser.newPage();
    await page.goto(`${demo.isolated}bench.html?${query}&threads=2&repeat=3&run`);
    await page.waitForSelector(':root:is([data-state="done"], [data-state="failed"])', { timeout: 900_000 });
    const state = await page.evaluate(() => document.documentElement.dataset.state);
    if (state === "failed") throw new Error(await page.getByRole("alert").innerText());
    const download = page.waitForEvent("download");
    await page.getByRole("button", { name: "Save as JSON" }).click();
    return JSON.parse(await readFile(await (await download).path(), "utf8"));
  } finally {
    await demo.stop();
  }
}

/** In a page that only measures, in browsers whose driver here knows nothing but what a page has printed. */
async function inPage({ open, shape }) {
  const folder = await mkdtemp(path.join(tmpdir(), "ternlight-row-"));
  const mounts = { "/": folder, "/dist/": fileURLToPath(new URL("../pkg/dist/", import.meta.url)) };
  const server = await serve({ mounts, headers: isolation });
  const given = { name: shape, options: { repeat: 3, profile: true }, load: { threads: 2 } };
  const script = `const { bench, synthetic } = await import("/dist/bench.js");
    const source = synthetic({ shape: ${JSON.stringify(shape)} });
    const report = await bench({ source, ...${JSON.stringify(given)} }).catch(({ message }) => ({ error: { message } }));
    document.querySelector("output").textContent = JSON.stringify(report);`;
  const after = [() => rm(folder, { recursive: true }), () => server.close()];
  try {
    await writeFile(path.join(folder, "index.html"), `<!doctype html><output></output><script type="module">${script}</script>`);
    const context = { after: (end) => after.push(end), diagnostic: console.error };
    const report = JSON.parse((await open(context, server.url)).printed);
    if (report.error) throw new Error(report.error.message);
    return report;
  } finally {
    for (const end of after.reverse()) await end();
  }
}

/** How a row is measured. */
const measure = (how) => (typeof how === "string" ? inNode(how) : how.open ? inPage(how) : inChromium(how.page));

const percent = (share) => (share == null ? "–" : `${(100 * share).toFixed(0)} %`);

console.log("| row | prefill tok/s | decode tok/s | p50, p99 ms | decode ÷ read, matrices | prefill ÷ multiply, matrices |");
console.log("|---|--:|--:|--:|--:|--:|");
for (const [name, how] of Object.entries(rows).filter(([name]) => new RegExp(process.argv[2] ?? "").test(name))) {
  const report = await measure(how);
  const file = new URL(`results/${report.date.slice(0, 10)}-${name}.json`, import.meta.url);
  await writeFile(file, `${JSON.stringify(report)}\n`);
  const speed = ({ median, least, most }) => `${median.toFixed(1)} (${least.toFixed(1)}–${most.toFixed(1)})`;
  const { ratios = {} } = report;
  const cells = [
    speed(report.prefill.tokensPerSecond),
    speed(report.decode.tokensPerSecond),
    `${report.decode.stepMs.p50.toFixed(2)}, ${report.decode.stepMs.p99.toFixed(2)}`,
    `${percent(ratios.decodeToRead)}, ${percent(ratios.decodeMatricesToRead)}`,
    `${percent(ratios.prefillToMultiply)}, ${percent(ratios.prefillMatricesToMultiply)}`,
  ];
  console.log(`| ${name} | ${cells.join(" | ")} |`);
}
