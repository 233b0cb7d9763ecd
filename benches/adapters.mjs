/**
 * What an adapter costs: `node benches/adapters.mjs SHAPE LAYERS RANK THREADS`, with Node 22.18 or newer and a built package. The
 * model and its adapter, on all seven matrices of each layer, are made of random numbers.
 */
import { load } from "../pkg/dist/node.js";
import { shapes } from "../pkg/src/bench/shapes.ts";
import { synthetic } from "../pkg/src/bench/synthetic.ts";
import { median } from "./median.mjs";

const [shape = "2b4t", layers = 30, rank = 16, threads = 1] = process.argv
  .slice(2)
  .map((text, i) => (i === 0 ? text : Number(text)));

const { hidden, heads, kv, head, ffn } = shapes[shape];
const matrices = {
  "self_attn.q_proj": [heads * head, hidden],
  "self_attn.k_proj": [kv * head, hidden],
  "self_attn.v_proj": [kv * head, hidden],
  "self_attn.o_proj": [hidden, heads * head],
  "mlp.gate_proj": [ffn, hidden],
  "mlp.up_proj": [ffn, hidden],
  "mlp.down_proj": [hidden, ffn],
};

function adapter() {
  const header = {};
  let at = 0;
  const add = (name, shape) => {
    const end = at + 4 * shape[0] * shape[1];
    header[name] = { dtype: "F32", shape, data_offsets: [at, end] };
    at = end;
  };
  for (let layer = 0; layer < layers; layer++) {
    for (const [name, [rows, cols]] of Object.entries(matrices)) {
      const module = `base_model.model.model.layers.${layer}.${name}`;
      add(`${module}.lora_A.weight`, [rank, cols]);
      add(`${module}.lora_B.weight`, [rows, rank]);
    }
  }
  const json = new TextEncoder().encode(JSON.stringify(header));
  const length = new BigUint64Array([BigInt(json.length)]);
  const data = new Float32Array(at / 4).map(() => (Math.random() - 0.5) * 0.02);
  return {
    "adapter_config.json": new Blob([JSON.stringify({ peft_type: "LORA", r: rank, lora_alpha: rank })]),
    "adapter_model.safetensors": new Blob([length, json, data]),
  };
}

const model = await load(synthetic({ shape, layers }), { threads, contextLength: 1024, maxAdapterBytes: 2 ** 30 });
const { name, bytes } = await model.loadAdapter(adapter(), { name: "random" });
console.log(`${shape}, ${layers} layers, rank ${rank}: ${(bytes / 1e6).toFixed(0)} MB; ${model.info.flavour}`);
const rows = new Map([[], [{ name }]].map((adapters) => [adapters, []]));
for (let run = 0; run < 5; run++) {
  for (const [adapters, speeds] of rows) {
    const prompt = Array.from({ length: 64 }, () => Math.floor(Math.random() * 1000));
    const options = { temperature: 0, maxTokens: 17, ignoreEos: true, adapters };
    const { timings } = await model.generate(prompt, options).finished;
    if (run > 0) speeds.push([timings.promptPerSecond, timings.predictedPerSecond]);
  }
}
const middle = (values) => median(values).toFixed(2);
for (const [adapters, speeds] of rows) {
  const [prefill, decode] = [0, 1].map((i) => middle(speeds.map((speed) => speed[i])));
  console.log(`${adapters.length} adapters: ${prefill} tokens/s of the prompt, ${decode} tokens/s of the answer`);
}
await model.close();
