/** What is written wins over the variables of what it rules out. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Args } from "../../src/cli/args.ts";
import type { CommandName, FlagKey } from "../../src/options/commands.ts";

const CASES: [CommandName, string[], Record<string, string>, FlagKey[]][] = [
  ["inspect", ["M", "--no-weights"], { WEIGHTS: "1" }, ["weights"]],
  ["run", ["M", "--ids", "1,2"], { PROMPT: "abc", PROMPTS: "in.jsonl", OUT: "out" }, ["prompt", "prompts", "out"]],
  ["run", ["M", "-"], { PROMPT: "abc", IDS: "1" }, ["prompt", "ids"]],
  ["run", ["M", "--prompts", "in.jsonl"], { SESSION: "kept", PROMPT: "abc" }, ["session", "prompt"]],
  ["run", ["M", "--prompts", "in.jsonl"], { JSON: "1" }, ["json"]],
  ["calibrate", ["M", "--dataset", "d"], { ACTIVATIONS: "int8" }, ["activations"]],
  ["run", ["M", "-p", "a", "--json-schema", "true"], { REGEX: "a+", GRAMMAR: "g" }, ["regex", "grammar"]],
  ["calibrate", ["M", "--entropy-threshold", "2"], { BUDGET: "2" }, ["budget"]],
  ["slice", ["M", "--tokens", "ids"], { KEEP: "9" }, ["keep"]],
  ["bench", ["M"], { SHAPE: "fairy", TYPE: "i2_s" }, ["shape", "weightType"]],
  ["bench", ["--shape", "fairy"], {}, []],
  ["loadtest", ["M"], { HOST: "http://a", API_KEY: "k", CHAT: "1" }, ["host", "apiKey", "chat"]],
  ["loadtest", ["M", "--clients", "2"], { RPS: "2" }, ["rps"]],
  ["loadtest", ["M", "--users", "2"], { RPS: "2", SECONDS: "3" }, ["rps", "seconds"]],
  ["cache delete", ["https://a/b"], { ALL: "1" }, ["all"]],
  ["serve", ["--unix", "socket"], { HOST: "::1", PORT: "80" }, ["host", "port"]],
];

test("variables of flags that what is written rules out are left aside", () => {
  for (const [command, argv, variables, left] of CASES) {
    const env = Object.fromEntries(Object.entries(variables).map(([name, value]) => [`TERNLIGHT_${name}`, value]));
    const args = new Args(command, argv, env);
    const about = `${command} ${argv.join(" ")}`;
    for (const key of left) assert.equal(args.has(key), false, `${about}: ${key}`);
    const [name] = argv.filter((one) => one.startsWith("--"));
    if (name) assert.ok(args.has(name.slice(2).replace(/-(.)/g, (_, a) => a.toUpperCase()) as FlagKey), about);
  }
});

test("variables that go with what is written stay, and two that were written are both there", () => {
  const kept = new Args("loadtest", ["--host", "http://a"], { TERNLIGHT_MODEL: "m", TERNLIGHT_API_KEY: "k" });
  assert.deepEqual([kept.text("serverModel"), kept.text("apiKey")], ["m", "k"]);
  const both = new Args("run", ["M", "-p", "a", "--ids", "1"]);
  assert.ok(both.has("prompt") && both.has("ids"));
  const batch = new Args("batch", ["I", "--out", "o"], { TERNLIGHT_JSON: "1" });
  const loadtest = new Args("loadtest", ["M", "--prompts", "p"], { TERNLIGHT_JSON: "1" });
  assert.ok(batch.has("json") && loadtest.has("json"));
  const refused = new Args("calibrate", ["M", "--activations", "int8"], { TERNLIGHT_ACTIVATIONS: "int4" });
  assert.equal(refused.text("activations"), "int8");
  assert.equal(new Args("quality", ["M", "T"], { TERNLIGHT_ACTIVATIONS: "int4" }).text("activations"), "int4");
  assert.equal(new Args("serve", ["M"], { TERNLIGHT_HOST: "::1" }).text("host"), "::1");
});
