import assert from "node:assert/strict";
import { test } from "node:test";
import { loadText } from "../../src/host/text.ts";
import { type ModelFiles, NO_SIDE } from "../../src/source/files.ts";
import { platform } from "./support/chat.ts";

const files = (generationConfig: unknown): ModelFiles => ({
  weights: [],
  promised: null,
  config: null,
  side: async () => ({ ...NO_SIDE, generationConfig }),
});
const presetOf = async (metadata: Record<string, unknown> | undefined, config: unknown) =>
  (await loadText(metadata, new Uint8Array(), files(config), platform)).sampling;

test("sampling defaults come from generation_config.json or from a GGUF's header", async () => {
  const own = { temperature: 0.6, top_k: 20, top_p: 0.9, typical_p: 0.95, repetition_penalty: 1.05 };
  const read = { temperature: 0.6, topK: 20, topP: 0.9, typicalP: 0.95, repetitionPenalty: 1.05 };
  assert.deepEqual(await presetOf(undefined, own), read);
  assert.deepEqual(await presetOf(undefined, { ...own, do_sample: false }), { ...read, temperature: 0 });
  const header = {
    "general.sampling.temp": 0.8,
    "general.sampling.top_k": 30,
    "general.sampling.min_p": 0,
    "general.sampling.penalty_repeat": 1.1,
    "general.sampling.xtc_probability": 0.5,
  };
  const gguf = { temperature: 0.8, topK: 30, minP: 0, repetitionPenalty: 1.1, xtcProbability: 0.5 };
  assert.deepEqual(await presetOf(header, null), gguf);
  assert.deepEqual(await presetOf(header, { top_k: 7 }), { ...gguf, topK: 7 }, "the file says more");
  const wrong = { temperature: "hot", top_k: -1, top_p: 2, min_p: null };
  assert.deepEqual(await presetOf({ "general.sampling.temp": Number.NaN }, wrong), {});
});
