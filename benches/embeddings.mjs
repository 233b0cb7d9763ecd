/**
 * How near the embeddings of a model come to what people say of pairs of sentences:
 *
 *   node benches/embeddings.mjs MODEL PAIRS.tsv [--pairs 300]
 *
 * A line of PAIRS.tsv is a score, a tab, a sentence, a tab, a sentence, as the sets of SemEval's STS tasks are. Spearman's correlation
 * of the cosines with the scores, times 100: of the embeddings as they are, less their mean ("centred"), and with each value then divided by
 * its deviation ("standardised"). Mean and deviation are those of the sentences measured. Beside them what shared tokens say, weighted
 * by how rare they are. A built package.
 */
import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { load } from "../pkg/dist/node.js";

const { values, positionals } = parseArgs({ allowPositionals: true, options: { pairs: { type: "string", default: "300" } } });
const [source, file] = positionals;
if (!file) throw new Error("which? give a model and a file of pairs");
const pairs = readFileSync(file, "utf8")
  .split("\n")
  .map((line) => line.split("\t"))
  .filter(([score, , second]) => score && second)
  .slice(0, +values.pairs);
const texts = [...new Set(pairs.flatMap(([, first, second]) => [first, second]))];
const place = new Map(texts.map((text, i) => [text, i]));

/** Equal values share the middle of their places. */
function ranks(list) {
  const order = list.map((_, i) => i).sort((a, b) => list[a] - list[b]);
  const found = [];
  for (let from = 0, to = 0; from < order.length; from = to) {
    while (to < order.length && list[order[to]] === list[order[from]]) to++;
    for (const i of order.slice(from, to)) found[i] = (from + to - 1) / 2;
  }
  return found;
}

const mean = (list) => list.reduce((sum, value) => sum + value, 0) / list.length;
const dot = (a, b) => a.reduce((sum, value, i) => sum + value * b[i], 0);
const cosine = (a, b) => dot(a, b) / Math.sqrt(dot(a, a) * dot(b, b)) || 0;
const centred = (list) => list.map((value) => value - mean(list));
const scores = ranks(pairs.map(([score]) => +score));
const spearman = (likeness) => 100 * cosine(centred(ranks(pairs.map(likeness))), centred(scores));

const columns = (rows, each) => {
  const list = rows[0].map((_, i) => each(rows.map((row) => row[i])));
  return rows.map((row, j) => row.map((_, i) => list[i][j]));
};
const standardised = (list) => {
  const deviation = Math.sqrt(mean(list.map((value) => value * value)));
  return list.map((value) => value / (deviation || 1));
};

function tell(name, states) {
  const rows = states.map((row) => [...row]);
  const middle = columns(rows, centred);
  const ways = [rows, middle, columns(middle, standardised)];
  const of = (way) => spearman(([, first, second]) => cosine(way[place.get(first)], way[place.get(second)]));
  console.log(`| ${name} | ${ways.map((way) => of(way).toFixed(1)).join(" | ")} |`);
}

const model = await load(source, { contextLength: 512 });
console.log(`${model.info.name ?? model.info.architecture}, ${file}: ${pairs.length} pairs, ${texts.length} sentences\n`);
console.log("| | as they are | centred | standardised |\n|---|--:|--:|--:|");
const ids = await Promise.all(texts.map((text) => model.tokenize(text, { addSpecial: false })));
const seen = new Map();
for (const id of ids.flatMap((one) => [...new Set(one)])) seen.set(id, (seen.get(id) ?? 0) + 1);
const weight = (set) => [...set].reduce((sum, id) => sum + Math.log((1 + texts.length) / seen.get(id)) ** 2, 0);
const tokens = ids.map((one) => new Set(one));
const shared = (a, b) => weight(new Set([...a].filter((id) => b.has(id)))) / Math.sqrt(weight(a) * weight(b));
const bag = spearman(([, first, second]) => shared(tokens[place.get(first)], tokens[place.get(second)]));
console.log(`| shared tokens | ${bag.toFixed(1)} | | |`);

const embed = (list, pooling) => model.embed(list, { pooling, normalize: false });
tell("mean", await embed(texts, "mean"));
tell("last", await embed(texts, "last"));
tell("prompt, last", await embed(texts.map((text) => `This sentence: "${text}" means in one word: "`), "last"));
// The mean of what follows a beginning: states look back alone, so those of the beginning are what they are without the rest.
async function behind(beginnings, whole) {
  const [before, all] = [await embed(beginnings, "mean"), await embed(whole, "mean")];
  const part = (row, i) => {
    const [first, length] = [beginnings[i].length, whole[i].length];
    return row.map((value, j) => (value * length - before[i][j] * first) / (length - first));
  };
  return all.map(part);
}
const several = ids.map((one) => (one.length > 1 ? one : [...one, ...one]));
tell("mean without the first token", await behind(several.map((one) => one.slice(0, 1)), several));
const once = await Promise.all(texts.map((text) => model.tokenize(`${text}\n`, { addSpecial: false })));
tell("twice, mean of the second", await behind(once, once.map((one, i) => [...one, ...ids[i]])));
await model.close();
