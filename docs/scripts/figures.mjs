/**
 * Writes the figures of the documents from the reports in benches/results. In a Markdown file, what stands between
 * `<!-- figures:NAME -->` and `<!-- /figures -->` is replaced by the result of the function NAME below.
 *
 *     node docs/scripts/figures.mjs            writes them
 *     node docs/scripts/figures.mjs --check    exits with 1 where one is out of date
 */
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../../", import.meta.url));
const results = path.join(root, "benches", "results");
export const documents = ["README.md", "docs/performance.md"];

/** The newest report of a row. */
function report(row) {
  const name = readdirSync(results).findLast(
    (file) => /^\d{4}-\d\d-\d\d-/.test(file) && file.slice(11) === `${row}.json`,
  );
  if (!name) throw new Error(`benches/results has no report of ${row}`);
  return JSON.parse(readFileSync(path.join(results, name), "utf8"));
}

const text = readFileSync(path.join(results, "README.md"), "utf8");

/** The first table after a text in benches/results/README.md, for figures whose tools print no JSON. */
function tableAfter(words) {
  const at = text.indexOf(words);
  const [table] = (at >= 0 && /^\|.*\|\n(?:\|.*\|\n)+/m.exec(text.slice(at))) || [];
  if (!table) throw new Error(`benches/results/README.md has no table after ${JSON.stringify(words)}`);
  return table.trim();
}

const one = (value) => (value < 100 ? value.toFixed(1) : Math.round(value).toLocaleString("en"));
const percent = (share) => `${Math.round(100 * share)} %`;
const range = ({ median, least, most }) =>
  least === most ? one(median) : `${one(median)} (${one(least)}–${one(most)})`;
const table = (head, rows) =>
  [head, head.map((_, i) => (i < 2 ? "---" : "--:")), ...rows].map((cells) => `| ${cells.join(" | ")} |`).join("\n");

/** The rows in the order of the table, and what is special in each. */
const rows = {
  "b2b-chromium": "",
  b2b: "",
  "b2b-512": "prompt 512",
  "b2b-1thread": "one thread",
  "b2b-simd128": "prompt 32, `--flavour simd128`",
  "b2b-batch4": "4 conversations, prompt 16 each; all together",
  "b2b-batch16": "16 conversations, prompt 128 each",
  "b2b-ctx512-f16": "prompt 16 behind 512 tokens, `--kv f16`",
  "b2b-ctx512-q8": "prompt 16 behind 512 tokens, `--kv q8`",
  "b2b-ctx4096-f16": "prompt 16 behind 4,096 tokens, `--kv f16`; one run",
  "b2b-ctx4096-q8": "prompt 16 behind 4,096 tokens, `--kv q8`; one run",
  "b2b-q1_0": "`--type q1_0`",
  "2b4t": "",
  "138m-q1_0-chromium": "",
  "138m-q1_0": "",
  "135m-chromium": "",
  "135m": "",
  "fairy-chromium": "prompt 64, decode 128",
  fairy: "prompt 64, decode 128",
};

export const figures = {
  readme() {
    const { prefill, decode, engine, model, machine } = report("b2b-chromium");
    const { cpu, cores } = report("b2b").machine;
    const size = (model.parameters / 1e9).toFixed(1);
    return `${one(decode.tokensPerSecond.median)} tokens/s decode and ${one(prefill.tokensPerSecond.median)} tokens/s prefill: a ternary model of ${size} billion parameters in ${machine.runtime}, ${engine.threads} threads on ${cores} cores of an ${name(cpu)} (AVX-512), while the page renders nothing; one that shows each piece [takes a core at times](docs/guide/threads.md#when-there-are-threads). Repeat it, without a download, with \`npx ternlight bench --shape b2b --threads 2\` in Node, or with \`bench.html\` of \`make demo\` in a browser.`;
  },

  machine() {
    const { cpu, cores, runtime } = report("b2b").machine;
    const browser = report("b2b-chromium").machine.runtime;
    return `${cores} cores of an ${name(cpu)} (a server with AVX-512 and VNNI), ${runtime} and ${browser}. Unless a row says otherwise: two threads, a prompt of 128 tokens, 32 tokens after it, f32 keys and values.`;
  },

  rows() {
    const lines = Object.entries(rows).map(([row, special]) => {
      const { prefill, decode, ratios } = report(row);
      const { p50, p99 } = decode.stepMs;
      return [
        row,
        special,
        range(prefill.tokensPerSecond),
        range(decode.tokensPerSecond),
        `${p50.toFixed(2)}, ${p99.toFixed(2)}`,
        percent(ratios.decodeToRead),
        percent(ratios.prefillToMultiply),
      ];
    });
    const head = [
      "Row",
      "",
      "Prefill, tokens/s",
      "Decode, tokens/s",
      "A step, p50 and p99, ms",
      "Decode ÷ read",
      "Prefill ÷ multiply",
    ];
    return table(head, lines);
  },

  peers: () => tableAfter("Side by side on"),

  loads() {
    const runtimes = ["node", "chromium"].map((runtime) => report(`loads-${runtime}`));
    const [{ size, result }] = runtimes;
    const speed = ({ result, size }, name) => String(Math.round(size / result[name].median / 1e3));
    const lines = Object.keys(result)
      .filter((name) => name !== "hash")
      .map((name) => [name.replaceAll('"', "`"), "", ...runtimes.map((one) => speed(one, name))]);
    const times = [
      "demo model from the cache, `load()` to first token",
      "ms",
      ...runtimes.map(({ first }) => String(Math.round(first.first))),
    ];
    return table([`A file of ${Math.round(size / 1e6)} MB, MB/s`, "", "Node 24", "Chromium 156"], [...lines, times]);
  },

  peaks: () => tableAfter("## Memory of a load"),

  crowd() {
    const { clients, seconds, answers, wrong, tokensPerSecond, firstPieceMs, shortFirstPieceMs, gapMs, memory } =
      report("crowd-600s");
    const ms = ({ p50, p95, p99 }) => [p50, p95, p99].map((value) => Math.round(value)).join(", ");
    const [begin, end] = memory.wasmBytes.map((bytes) => (bytes / 1e6).toFixed(1));
    return `A load test of ${Math.round(seconds)} s with ${clients} clients on the demo model (\`npx ternlight loadtest ternlight-demo --seconds 600\`): ${answers.whole.toLocaleString("en")} whole answers and ${answers.brokenOff.toLocaleString("en")} broken off, ${wrong} of which differ from what their prompt gets alone; ${Math.round(tokensPerSecond).toLocaleString("en")} tokens/s together; first pieces after ${ms(firstPieceMs)} ms (p50, p95, p99), of short prompts after ${ms(shortFirstPieceMs)} ms; gaps of ${gapMs.p95.toFixed(1)} ms at p95 and ${Math.round(gapMs.most)} ms at most; the engine's memory is ${begin} MB after a tenth of the time and ${end} MB at the end.`;
  },

  gaps: () => tableAfter("## Beside a long prompt"),
};

/** Processors as people write them. */
const name = (cpu) => cpu.replaceAll("(R)", "").replace(" Processor", "");

/** A document with its figures as the reports have them. */
export function filled(document) {
  return document.replace(/(<!-- figures:(\w+) -->\n)[\s\S]*?(<!-- \/figures -->)/g, (_, begin, figure, end) => {
    if (!figures[figure]) throw new Error(`no figure is named ${figure}`);
    return `${begin}\n${figures[figure]()}\n\n${end}`;
  });
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const check = process.argv.includes("--check");
  for (const name of documents) {
    const file = path.join(root, name);
    const before = readFileSync(file, "utf8");
    const after = filled(before);
    if (before === after) continue;
    if (check) {
      console.error(`${name}: figures are out of date: node docs/scripts/figures.mjs writes them`);
      process.exitCode = 1;
    } else writeFileSync(file, after);
  }
}
