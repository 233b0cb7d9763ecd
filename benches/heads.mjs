/**
 * The table of the option `head` in docs/guide/formats.md: what each type of embedding and head takes, and what it does to the answers.
 *
 *   node benches/heads.mjs TEXT MODEL@WINDOW... [--positions 8192] [--threads 2]
 *
 * measures the perplexity of each model on TEXT, window by window, and on the first positions of it how far the logits are from those of
 * the model as it is stored: the Kullback-Leibler divergence of the next token, in nats, and how often the same token is the likeliest.
 *
 *   node benches/heads.mjs --shape 2b4t [--embedding f16] [--repeat 5]
 *
 * measures decode speed of random weights of a shape, all types by turns, and prints the best run of each. Needs Node 22.18 or newer
 * and a built package.
 */
import { readFileSync } from "node:fs";
import path from "node:path";
import { parseArgs } from "node:util";
import { inspect, load } from "../pkg/dist/node.js";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    positions: { type: "string", default: "8192" },
    threads: { type: "string", default: "2" },
    shape: { type: "string" },
    embedding: { type: "string", default: "f16" },
    repeat: { type: "string", default: "5" },
  },
});
const [positions, threads, repeat] = [values.positions, values.threads, values.repeat].map(Number);
const table = (rows) =>
  [rows[0], rows[0].map(() => "---"), ...rows.slice(1)].map((row) => `| ${row.join(" | ")} |`).join("\n");
const megabytes = (bytes) => (bytes / 1e6).toFixed(1);

/** How far `found` is from `expected`: divergence in nats, and whether both have the same winner. */
function compare(found, expected) {
  const sum = (row, most) => row.reduce((total, logit) => total + Math.exp(logit - most), 0);
  const top = (row) => row.reduce((best, logit, i) => (logit > row[best] ? i : best), 0);
  const [p, q] = [top(expected), top(found)];
  const logs = [
    [expected, p],
    [found, q],
  ].map(([row, best]) => row[best] + Math.log(sum(row, row[best])));
  let divergence = 0;
  for (const [i, logit] of expected.entries()) {
    const log = logit - logs[0];
    divergence += Math.exp(log) * (log - (found[i] - logs[1]));
  }
  return { divergence, same: p === q };
}

async function quality(text, name) {
  const at = name.lastIndexOf("@");
  const [file, window] = [name.slice(0, at), Number(name.slice(at + 1))];
  const options = { threads, contextLength: window, kvCacheTokens: window };
  const { heads, tensors } = await inspect(file, { contextLength: window });
  const embedding = tensors.find(({ name }) => /embd|embed_tokens/.test(name));
  const stored = await load(file, options);
  const ids = (await stored.tokenize(text, { addSpecial: false })).slice(0, positions);
  const rows = [["head", "weights, MB", "read for a token, MB", "perplexity", "KL, nats", "same winner"]];
  for (const { head, memory, bytesPerToken } of heads) {
    const model = head === "stored" ? stored : await load(file, { ...options, head });
    const { perplexity, tokens } = await model.perplexity(text, { window });
    let [divergence, same, count] = [0, 0, 0];
    for (let from = 0; head !== "stored" && from < ids.length; from += window) {
      const part = ids.slice(from, from + window);
      const [found, expected] = await Promise.all([model, stored].map((one) => one.logits(part, { all: true })));
      for (const [i, row] of found.entries()) {
        const one = compare(row, expected[i]);
        divergence += one.divergence;
        same += one.same ? 1 : 0;
        count++;
      }
    }
    const label = head === "stored" ? `stored (${embedding.type})` : head;
    const distance = count > 0 ? [(divergence / count).toFixed(5), `${((100 * same) / count).toFixed(2)} %`] : ["", ""];
    rows.push([label, megabytes(memory.weights), megabytes(bytesPerToken), perplexity.toFixed(3), ...distance]);
    if (model !== stored) await model.close();
    else console.log(`${path.basename(file)}: ${tokens} tokens in windows of ${window}, logits of ${ids.length}\n`);
  }
  await stored.close();
  console.log(`${table(rows)}\n`);
}

async function speed(shape) {
  const { synthetic } = await import("../pkg/src/bench/synthetic.ts");
  const source = synthetic({ shape, embedding: values.embedding });
  const { heads } = await inspect(source);
  const best = new Map(heads.map(({ head }) => [head, 0]));
  const prompt = Array.from({ length: 16 }, (_, i) => 100 + i);
  for (let run = 0; run < repeat; run++) {
    for (const { head } of heads) {
      const model = await load(source, { threads, head, contextLength: 256 });
      await model.warmup();
      const { timings } = await model.generate(prompt, { temperature: 0, maxTokens: 33, ignoreEos: true }).finished;
      best.set(head, Math.max(best.get(head), timings.predictedPerSecond));
      await model.close();
    }
  }
  const rows = heads.map(({ head, memory, bytesPerToken }) => [
    head === "stored" ? `stored (${values.embedding})` : head,
    megabytes(memory.weights),
    megabytes(bytesPerToken),
    best.get(head).toFixed(1),
  ]);
  console.log(table([["head", "weights, MB", "read for a token, MB", `${shape}: tokens/s`], ...rows]));
}

const [file, ...models] = positionals;
if (values.shape) await speed(values.shape);
if (file) for (const name of models) await quality(readFileSync(file, "utf8"), name);
