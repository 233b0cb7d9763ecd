/** Maps of activations: which matrices a key names, and what is refused. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { flatMap, layerMatrices, PRECISIONS, resolveMap } from "../../src/options/activation_map.ts";
import type { ActivationMap, Description } from "../../src/types/index.ts";

const MATRICES = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"];
const OTHER = ["q_proj", "k_proj", "v_proj", "o_proj"].map((name) => `self_attn.${name}`);
const FEED_FORWARD = ["gate_proj", "up_proj", "down_proj"].map((name) => `mlp.${name}`);

const described = (names: readonly string[], layers: number) =>
  ({ config: { layers }, tensors: names.map((name) => ({ name })) }) as unknown as Pick<
    Description,
    "tensors" | "config"
  >;

const layered = (prefix: string, matrices: readonly string[], layers: number) =>
  Array.from({ length: layers }, (_, layer) => matrices.map((name) => `${prefix}.${layer}.${name}.weight`)).flat();

const model = described([...layered("blk", [...MATRICES, "attn_norm"], 6), "token_embd.weight", "output.weight"], 6);

const refused = (map: unknown, key: string, pattern: RegExp) =>
  assert.throws(
    () => resolveMap(map as ActivationMap, model),
    (error: { code: string; message: string; detail: Record<string, unknown> }) => {
      assert.deepEqual([error.code, error.detail.option, error.detail.key], ["InvalidArgument", "activations", key]);
      assert.match(error.message, pattern);
      return true;
    },
  );

test("a layer, a range and all, each whole or with a matrix", () => {
  assert.equal(resolveMap({ "blk.3": "int4" }, model).size, MATRICES.length);
  assert.equal(resolveMap({ "blk.0-5": "int4" }, model).size, 6 * MATRICES.length);
  assert.equal(resolveMap({ "blk.*": "int2" }, model).size, 6 * MATRICES.length);
  assert.deepEqual(
    [...resolveMap({ "blk.1-2.attn_q": "int2" }, model)],
    [
      ["blk.1.attn_q", "int2"],
      ["blk.2.attn_q", "int2"],
    ],
  );
  assert.deepEqual([...resolveMap({ "blk.5.ffn_down.weight": "float" }, model).keys()], ["blk.5.ffn_down"]);
  assert.equal(resolveMap({}, model).size, 0);
});

test("the closest key counts, in any order of the keys", () => {
  const entries: [string, "int2" | "int4" | "int8" | "int14"][] = [
    ["blk.*", "int14"],
    ["blk.0-3", "int8"],
    ["blk.2", "int4"],
    ["blk.*.attn_q", "int2"],
    ["blk.2.attn_q", "int8"],
  ];
  for (const order of [entries, [...entries].reverse()]) {
    const found = resolveMap(Object.fromEntries(order), model);
    const at = (name: string) => found.get(name);
    assert.deepEqual(
      [at("blk.5.attn_k"), at("blk.1.attn_k"), at("blk.2.attn_k"), at("blk.1.attn_q"), at("blk.2.attn_q")],
      ["int14", "int8", "int4", "int2", "int8"],
    );
  }
});

test("names of checkpoints are the same matrices", () => {
  const names = layered("model.layers", [...OTHER, ...FEED_FORWARD, "input_layernorm"], 2);
  const expected = layerMatrices(described(layered("blk", MATRICES, 2), 2));
  assert.deepEqual(layerMatrices(described(names, 2)), expected);
  const nested = names.map((name) => name.replace("model.", "model.language_model."));
  assert.deepEqual(layerMatrices(described(nested, 2)), expected);
});

test("keys and values that mean nothing are refused by name, with what is meant", () => {
  refused({ "blk.6": "int4" }, "blk.6", /layers from 0 to 5, got 6/);
  refused({ "blk.4-2": "int4" }, "blk.4-2", /layers from 0 to 5, got 4-2/);
  refused({ "blk.0.attn_w": "int4" }, "blk.0.attn_w", /attn_q, attn_k/);
  refused({ "blk.0.ffn_dwon": "int4" }, "blk.0.ffn_dwon", /did you mean ffn_down\?/);
  refused({ "blk.0.ssm_out": "int4" }, "blk.0.ssm_out", /a matrix that the model has/);
  refused({ "output.weight": "int4" }, "output.weight", /blk\.FIRST-LAST/);
  refused({ "blk.0": "int3" }, "blk.0", /int2, int4, int8, int14, float/);
  refused({ "blk.0": 4 }, "blk.0", /got 4/);
  refused({ "blk.0-1": "int4", "blk.1-2": "int2" }, "blk.1-2", /int4 for blk\.1\.attn_q, as "blk\.0-1" says/);
  refused({ constructor: "int4" }, "constructor", /expected/);
  refused({ "blk.0.constructor": "int4" }, "blk.0.constructor", /expected/);
});

test("the engine gets a digit for each role, by the numbers of its own source", () => {
  const source = readFileSync(new URL("../../../src/model/names.rs", import.meta.url), "utf8");
  const body = /pub enum TensorRole \{([^}]*)\}/.exec(source)![1]!.replace(/\/\/.*$/gm, "");
  const roles = body
    .split(",")
    .map((role) => role.trim())
    // An MTP head has no matrix of a map.
    .filter((role) => role !== "" && !role.startsWith("Mtp"));
  const names = [...MATRICES, "attn_qkv", "attn_gate", "ssm_alpha", "ssm_beta", "ssm_out"];
  for (const [i, name] of names.entries()) {
    const precision = (["int8", "int14", "float", "int4", "int2"] as const)[i % 5]!;
    const flat = flatMap(new Map([[`blk.1.${name}`, precision]]), 3);
    const role = name.replace(/(?:^|_)(.)/g, (_, letter: string) => letter.toUpperCase());
    const expected = "0".repeat(roles.length * 3).split("");
    expected[roles.length + roles.indexOf(role)] = String(1 + (i % 5));
    assert.equal(flat, expected.join(""), name);
  }
  assert.deepEqual(PRECISIONS, ["int2", "int4", "int8", "int14", "float"]);
});
