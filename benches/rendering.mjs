/**
 * How fast an answer comes in a page that renders it:
 *
 *   node benches/rendering.mjs "$(bash scripts/smollm2.sh)" [--threads 1,2] [--tokens 200] [--repeat 5] [--dist pkg/dist,OTHER]
 *
 * A React page shows an answer that grows, with a state update for every piece, as chat pages do: once for each token, and once for what
 * has come until the next frame (`pieces`); beside a page that reads the pieces and shows nothing. Rows by turns, so that what else the
 * machine does meets all of them. With several folders of `--dist`, builds are compared. Writes results/DATE-rendering.json. A built
 * package, Chromium, React from pkg/test/hosts, and Node 22 or later.
 */
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { cpus, tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { build } from "esbuild";
import { launch } from "../pkg/test/package/browsers.mjs";
import { isolation, serve } from "../scripts/serve.mjs";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    threads: { type: "string", default: "1,2" },
    tokens: { type: "string", default: "200" },
    repeat: { type: "string", default: "5" },
    dist: { type: "string", default: "pkg/dist" },
  },
});
const [file] = positionals;
if (!file) throw new Error("which model? give a GGUF file");
const root = fileURLToPath(new URL("../", import.meta.url));

/** Runs in the page. */
const program = `
import { createElement as h, useEffect, useState } from "react";
import { createRoot } from "react-dom/client";
import { median } from "./median.mjs";

let show;
function Answer() {
  const [text, setText] = useState("");
  useEffect(() => { show = setText; }, []);
  const lines = text.split(/(?<=[.!?])\\s/);
  return h("main", { style: { font: "16px/1.5 sans-serif", maxWidth: 640 } },
    h("h1", null, "Answer"),
    h("p", null, text.length, " characters"),
    lines.map((line, i) => h("p", { key: i }, line.split(" ").map((word, j) => h("span", { key: j }, word, " ")))));
}

globalThis.measure = async ({ library, threads, tokens, how }) => {
  const { load } = await import(library);
  const model = await load(new URL("model.gguf", location.href).href, { threads, contextLength: 2048, cache: false });
  const root = createRoot(document.querySelector("#root"));
  root.render(h(Answer));
  while (!show) await new Promise((resolve) => setTimeout(resolve, 10));
  const say = async (maxTokens, renders) => {
    const options = { temperature: 0, ignoreEos: true, maxTokens, ...(how.pieces ? { pieces: how.pieces } : {}) };
    const generation = model.generate("Once upon a time there was a fisherman who", options);
    let [text, pieces, fewest] = ["", 0, threads];
    for await (const piece of generation) {
      pieces++;
      text += piece.text;
      if (renders) show(text);
      if (pieces % 8 === 0) fewest = Math.min(fewest, (await model.status()).threads ?? threads);
    }
    const { timings } = await generation.finished;
    return { tokensPerSecond: timings.predictedPerSecond, pieces, fewest };
  };
  await say(32, false);
  const result = await say(tokens, how.renders);
  root.unmount();
  show = undefined;
  await model.close();
  return result;
};
`;

const { outputFiles } = await build({
  stdin: { contents: program, resolveDir: path.join(root, "pkg/test/hosts") },
  bundle: true,
  format: "esm",
  define: { "process.env.NODE_ENV": '"production"' },
  write: false,
});

const dists = values.dist.split(",");
const mounts = { "/model.gguf": path.resolve(file) };
for (const [i, dist] of dists.entries()) mounts[`/dist${i}/`] = `${path.resolve(root, dist)}/`;
const folder = await mkdtemp(path.join(tmpdir(), "ternlight-rendering-"));
const html = '<!doctype html><meta charset="utf-8"><div id="root"></div><script type="module" src="/page.js"></script>';
await writeFile(path.join(folder, "index.html"), html);
await writeFile(path.join(folder, "page.js"), outputFiles[0].text);
const server = await serve({ mounts: { ...mounts, "/": folder }, headers: isolation });

const ways = {
  "nothing rendered": { renders: false, pieces: "token" },
  "React, each token": { renders: true, pieces: "token" },
  "React, joined": { renders: true, pieces: "joined" },
};
const rows = dists.flatMap((dist, i) =>
  values.threads.split(",").flatMap((threads) =>
    Object.entries(ways).map(([way, how]) => ({ dist, library: `/dist${i}/index.js`, threads: +threads, way, how, runs: [] })),
  ),
);
for (let turn = 0; turn < +values.repeat; turn++) {
  for (const row of rows) {
    const browser = await launch();
    try {
      const page = await browser.newPage();
      await page.goto(server.url);
      await page.waitForFunction(() => globalThis.measure);
      const { library, threads, how } = row;
      const run = await page.evaluate((task) => globalThis.measure(task), { library, threads, how, tokens: +values.tokens });
      row.runs.push(run);
      console.error(`${row.dist} ${threads} ${row.way}: ${run.tokensPerSecond.toFixed(1)} (${run.pieces} pieces, ${run.fewest} threads at least)`);
    } finally {
      await browser.close();
    }
  }
}
server.close();
await rm(folder, { recursive: true });

const sorted = (row, key) => row.runs.map((run) => run[key]).sort((a, b) => a - b);
console.log("| build | threads | page | tokens/s: median | least | most | pieces |\n|---|--:|---|--:|--:|--:|--:|");
for (const row of rows) {
  const speeds = sorted(row, "tokensPerSecond");
  const cells = [median(speeds), speeds[0], speeds.at(-1)].map((speed) => speed.toFixed(1));
  console.log(`| ${row.dist} | ${row.threads} | ${row.way} | ${cells.join(" | ")} | ${median(sorted(row, "pieces"))} |`);
}
const date = new Date().toISOString();
const machine = { cpu: cpus()[0].model, cores: cpus().length };
const report = { date, machine, model: path.basename(file), tokens: +values.tokens, rows: rows.map(({ how, library, ...row }) => row) };
await writeFile(path.join(root, "benches/results", `${date.slice(0, 10)}-rendering.json`), `${JSON.stringify(report, null, 2)}\n`);
