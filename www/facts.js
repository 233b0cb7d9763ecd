/** What is known of a loaded model and of the engine that runs it. */

import { count, decimal, integer, size } from "./format.js";

export function summary(info, note) {
  return `${count(info.parameters)} parameters at ${decimal(info.bitsPerWeight)} bits, ${note}`;
}

export function showEngine(list, info) {
  const { weights, kv, states, scratch } = info.memory;
  fill(list, [
    ["Build", `${info.flavour}, ${info.dotProduct}`],
    [
      "Threads",
      integer(info.threads),
      info.threadsReason && `${info.threads === 1 ? "One" : "No more"}, because ${info.threadsReason}`,
    ],
    [
      "Memory",
      size(info.memoryBytes),
      `${size(weights)} weights, ${size(kv + states)} cache, ${size(scratch)} scratch`,
    ],
  ]);
}

export function showModel(list, info) {
  const { layers, hidden, heads, kvHeads, vocab } = info.config;
  const kinds = Object.entries(info.kinds).sort(([, a], [, b]) => b - a);
  fill(list, [
    ...(info.name ? [["Name", info.name]] : []),
    ["Architecture", info.architecture],
    ["Shape", `${layers} layers of ${integer(hidden)}`, `${heads} heads, ${kvHeads} for keys and values`],
    ["Parameters", integer(info.parameters)],
    ["Bits per weight", decimal(info.bitsPerWeight)],
    ["Tensors", kinds.map(([kind, number]) => `${number} × ${kind}`).join(", ")],
    ["Activations", info.activations],
    ["Context", `${integer(info.contextLength)} tokens`, `cache in ${info.kvCacheType}`],
    ["Vocabulary", integer(vocab), info.tokenizer?.kind],
    ["Format", info.format],
    ...info.warnings.map((warning) => ["Note", warning]),
  ]);
}

/** Rows of a name, a value and what may be said beside it. */
export function fill(list, rows) {
  list.replaceChildren(
    ...rows.map(([name, value, aside]) => {
      const row = document.createElement("div");
      const described = tag("dd", value);
      if (aside) described.append(tag("small", aside));
      row.append(tag("dt", name), described);
      return row;
    }),
  );
}

export function tag(name, text) {
  const element = document.createElement(name);
  element.textContent = text;
  return element;
}
