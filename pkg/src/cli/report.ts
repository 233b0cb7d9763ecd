/** The description of a model as text. */

import type { Description, HeadChoice, TensorSummary } from "../types/index.ts";
import { bytes, count, memoryText, percent, plural, table } from "./format.ts";

export function report(source: string, about: Description): string {
  const parts = [
    about.name ?? source,
    table("ll", facts(about)),
    ...(about.heads.length > 1 ? ["Embedding and head", table("lrrr", heads(about.heads))] : []),
    "Storage types",
    table("lrrrrrr", kinds(about.tensors)),
    "Tensors",
    table("lrllrrrrrr", groups(about.tensors)),
    ...(about.warnings.length > 0 ? ["Warnings", about.warnings.map((warning) => `  ${warning}`).join("\n")] : []),
  ];
  // Every heading has a blank line before it and none after it.
  return parts.map((part, i) => (i % 2 === 0 && i > 0 ? `\n${part}` : part)).join("\n");
}

function facts(about: Description): [string, string][] {
  const { config, tokenizer, template, memory } = about;
  return [
    ["format", about.format],
    ["architecture", about.architecture],
    [
      "parameters",
      `${count(about.parameters)}, ${about.bitsPerWeight.toFixed(2)} bits each, ${bytes(sum(about.tensors, stored))}`,
    ],
    ["layers", `${config.layers} of ${config.hidden} wide, FFN ${config.ffn} (${config.activation})`],
    [
      "attention",
      `${plural(config.heads, "head")} and ${plural(config.kvHeads, "key/value head")} of ${config.headSize}`,
    ],
    ["context", `${config.contextLength} positions, RoPE base ${config.ropeBase}`],
    ["vocabulary", `${config.vocab}, ${config.tied ? "embedding and head are one" : "embedding and head are two"}`],
    [
      "activations",
      [about.activations, ...(about.activationMap ? [JSON.stringify(about.activationMap)] : [])].join(": "),
    ],
    ...(about.ternaryPacking ? [["ternary weights", about.ternaryPacking] as [string, string]] : []),
    ...(about.oneBitSums ? [["1-bit sums", about.oneBitSums] as [string, string]] : []),
    ...(about.i2s ? [["I2_S order", i2sFacts(about.i2s)] as [string, string]] : []),
    ["tokenizer", tokenizer ? tokenizerFacts(tokenizer) : "none: prompts must be token ids"],
    ["chat template", template ? `${plural(template.length, "character")}, from ${template.source}` : "none"],
    ["memory to run", memoryText(memory)],
  ];
}

/** What each value of --head takes, and what it gains. */
function heads(choices: readonly HeadChoice[]): string[][] {
  const [stored] = choices;
  const rows = choices.map(({ head, memory, bytesPerToken }) => [
    head,
    bytes(memory.total),
    bytes(bytesPerToken),
    percent(bytesPerToken / stored!.bytesPerToken),
  ]);
  return [["--head", "memory to run", "read for a token", "of stored"], ...rows];
}

function i2sFacts({ interleave, from }: NonNullable<Description["i2s"]>): string {
  const why = {
    option: "as asked",
    size: "by a tensor's size",
    weights: "by the weights",
    default: "taken for granted",
  };
  return `groups of ${interleave}, ${why[from]}`;
}

function tokenizerFacts({ kind, vocab, bos, eos, addBos }: NonNullable<Description["tokenizer"]>): string {
  const begin = bos === null ? "no BOS" : `BOS ${bos} is ${addBos ? "" : "not "}added`;
  return `${kind}, ${vocab} tokens, ${begin}, ends at ${eos.join(" or ") || "nothing"}`;
}

function kinds(tensors: readonly TensorSummary[]): string[][] {
  const types = [...new Set(tensors.map((tensor) => tensor.type))];
  const all = sum(tensors, stored);
  const rows = types.map((type) => tensors.filter((tensor) => tensor.type === type));
  rows.sort((a, b) => sum(b, stored) - sum(a, stored));
  const cells = rows.map((own) => {
    const bits = (8 * sum(own, stored)) / sum(own, values);
    const share = percent(sum(own, stored) / all);
    const zeros = zeroShare(own);
    const shown = [count(sum(own, values)), bits.toFixed(2), bytes(sum(own, stored)), share];
    return [own[0]!.type, String(own.length), ...shown, zeros === null ? "" : percent(zeros)];
  });
  return [["type", "tensors", "values", "bits", "size", "of all", "zeros"], ...cells];
}

interface Group {
  name: string;
  layers: number[];
  tensors: TensorSummary[];
}

/** Rows of the table of tensors. Tensors that differ only in their layer share a row. */
function groups(tensors: readonly TensorSummary[]): string[][] {
  const found = new Map<string, Group>();
  for (const tensor of tensors) {
    const layer = /\.(\d+)\./.exec(tensor.name);
    const name = layer ? tensor.name.replace(layer[0], ".*.") : tensor.name;
    const key = [name, tensor.type, tensor.shape, tensor.scale, tensor.bits, tensor.zeroPoint].join();
    const group = found.get(key) ?? { name, layers: [], tensors: [] };
    found.set(key, group);
    group.tensors.push(tensor);
    if (layer) group.layers.push(Number(layer[1]));
  }
  const rows = [...found.values()].map(({ name, layers, tensors }) => {
    const [{ type, shape, scale, bits }] = tensors as [TensorSummary];
    const about = [name, ranges(layers), type, shape.join(" × "), scale === "none" ? "" : scale];
    const packed = [String(bits), zeroPoint(tensors[0]!), bytes(sum(tensors, inMemory)), padding(tensors)];
    return [...about, bytes(sum(tensors, stored)), ...packed, zeros(tensors)];
  });
  const head = ["name", "layers", "type", "shape", "scale per", "size"];
  return [[...head, "code bits", "zero point", "in memory", "padding", "zeros"], ...rows];
}

/** Floats have none, and with minima each block has its own. */
const zeroPoint = ({ zeroPoint, scale }: TensorSummary) =>
  (zeroPoint ?? (scale === "none" ? "" : "by block")).toString();

/** What of a group's memory fills tiles up; empty where nothing does. */
function padding(tensors: readonly TensorSummary[]): string {
  const share = sum(tensors, (tensor) => tensor.paddingBytes) / sum(tensors, inMemory);
  return share > 0 ? percent(share) : "";
}

/** Numbers as ranges: `0-5 7`. */
function ranges(numbers: readonly number[]): string {
  const runs: [number, number][] = [];
  for (const number of [...numbers].sort((a, b) => a - b)) {
    const last = runs.at(-1);
    if (last && last[1] === number - 1) last[1] = number;
    else runs.push([number, number]);
  }
  return runs.map(([from, to]) => (from === to ? `${from}` : `${from}-${to}`)).join(" ");
}

/** The share of zeros in a group, with the least and the greatest of its tensors. */
function zeros(tensors: readonly TensorSummary[]): string {
  const mean = zeroShare(tensors);
  if (mean === null) return "";
  const shares = tensors.map((tensor) => tensor.zeroShare!);
  const [least, most] = [percent(Math.min(...shares)), percent(Math.max(...shares))];
  return percent(mean) + (least === most ? "" : ` (${least.replace(" %", "")}–${most.replace(" %", "")})`);
}

/** The share of zeros in all weights that were read. Norms and scales are not read. */
function zeroShare(tensors: readonly TensorSummary[]): number | null {
  const known = tensors.filter((tensor) => tensor.zeroShare !== undefined);
  return known.length > 0 ? sum(known, (tensor) => tensor.zeroShare! * values(tensor)) / sum(known, values) : null;
}

const values = (tensor: TensorSummary) => tensor.shape.reduce((product, length) => product * length, 1);
const stored = (tensor: TensorSummary) => tensor.bytes;
const inMemory = (tensor: TensorSummary) => tensor.memoryBytes;
const sum = (tensors: readonly TensorSummary[], value: (tensor: TensorSummary) => number) =>
  tensors.reduce((total, tensor) => total + value(tensor), 0);
