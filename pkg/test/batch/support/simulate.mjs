/**
 * A batch whose engine is simulated: `simulate.mjs '{"lines": 1000, "out": …, "begun": …}'`. Every line that begins is written to the
 * file `begun`, synchronously, so that a test can count what is done twice. With `input` lines come from that file, or from standard
 * input (`-`), as the command reads them. Prints the most memory that it took.
 */
import { appendFileSync } from "node:fs";
import { openInput } from "../../../src/batch/input.ts";
import { leftBy, Output } from "../../../src/batch/output.ts";
import { readRows } from "../../../src/batch/rows.ts";
import { runBatch } from "../../../src/batch/run.ts";

const { lines, input, out, begun, chunk = 32, workers = 1, delay = 0 } = JSON.parse(process.argv[2]);

async function* rows() {
  const BLOCK = 512;
  for (let at = 0; at < lines; at += BLOCK) {
    const length = Math.min(BLOCK, lines - at);
    yield Array.from({ length }, (_, i) => ({ index: at + i, text: JSON.stringify({ prompt: `line ${at + i}` }) }));
  }
}

let most = 0;
const worker = {
  async answer({ index, text }) {
    if (begun) appendFileSync(begun, `${index}\n`);
    if (delay > 0) await new Promise((resolve) => setTimeout(resolve, delay * (1 + ((index * 7919) % 5))));
    if (index % 4096 === 0) most = Math.max(most, process.memoryUsage().rss);
    return {
      text: JSON.stringify({ index, text: text.slice(0, 40), answer: "x".repeat(100) }),
      failed: index % 100 === 99,
    };
  },
};

const places = { out, errors: `${out}.errors`, always: true };
const kept = await leftBy(places);
const output = await Output.open(places, "simulated", kept, true);
const start = performance.now();
const { signal } = new AbortController();
const source = input === undefined ? rows() : readRows(await openInput(input, signal), null);
await runBatch({ rows: source, workers: Array(workers).fill(worker), chunk, output, signal });
await output.finish();
const seconds = (performance.now() - start) / 1000;
console.log(JSON.stringify({ done: output.done, failed: output.failed, megabytes: most / 1e6, seconds }));
