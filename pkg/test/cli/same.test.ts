/** Whatever computes it, and in whatever pieces: the same ids, and the same bits of the logits. */

import assert from "node:assert/strict";
import { availableParallelism } from "node:os";
import { test } from "node:test";
import { DEMO, type Host, json, path, start } from "./support/ternlight.ts";

const host = (file: string) => path(`pkg/test/hosts/node_modules/${file}`);
const HOSTS: Record<string, Host> = {
  "Node 20": [host("node20/bin/node")],
  "Node 24": [host("node24/bin/node")],
  Deno: [host(".bin/deno"), "run", "--allow-all"],
  Bun: [host(".bin/bun")],
};

const PROMPT = "The king had three sons, and the youngest of them";
const run = ["run", DEMO, "-p", PROMPT, "-n", "20", "--temp", "0.8", "--seed", "11"];
const { ids } = await json("tokenize", DEMO, "-p", PROMPT);
const logits = ["logits", DEMO, "--ids", ids.join(), "--all"];

const expected = {
  tokens: (await json(...run, "--threads", "1", "--flavour", "simd128")).tokens,
  sha256: (await json(...logits, "--threads", "1", "--flavour", "simd128")).sha256,
};

test("for every flavour and number of threads", async () => {
  for (const flavour of ["relaxed", "simd128"]) {
    for (const asked of [1, 2]) {
      const threads = Math.min(asked, availableParallelism());
      const answer = await json(...run, "--flavour", flavour, "--threads", String(asked));
      assert.equal(answer.model.flavour, `${threads === 1 ? "single" : "threads"}-${flavour}`);
      assert.equal(answer.model.threads, threads);
      assert.deepEqual(answer.tokens, expected.tokens, answer.model.flavour);
      const { sha256 } = await json(...logits, "--flavour", flavour, "--threads", String(asked));
      assert.equal(sha256, expected.sha256, answer.model.flavour);
    }
  }
});

test("for both ways to sum products, and on a processor whose own way is the other one", async () => {
  for (const flavour of ["relaxed", "simd128"]) {
    for (const dotProduct of ["dot4", "dot2"]) {
      const args = ["--flavour", flavour, "--dot-product", dotProduct, "--threads", "1"];
      const answer = await json(...run, ...args);
      assert.equal(answer.model.dotProduct, dotProduct);
      assert.deepEqual(answer.tokens, expected.tokens, `${flavour} ${dotProduct}`);
      assert.equal((await json(...logits, ...args)).sha256, expected.sha256, `${flavour} ${dotProduct}`);
    }
  }
  if (process.arch !== "x64") return;
  const plain: Host = [host("node24/bin/node"), "--no-enable-avx-vnni"];
  // A record of the same processor without the flag would decide.
  const { status, stdout, stderr } = await start([...run, "--json", "--no-cache"], plain).ended;
  assert.equal(status, 0, stderr);
  const answer = JSON.parse(stdout);
  assert.deepEqual([answer.model.dotProduct, answer.tokens], ["dot2", expected.tokens]);
});

test("for kernels that the environment chooses, unless a flag does", async () => {
  const host: Host = [
    "env",
    "TERNLIGHT_DOT_PRODUCT=dot2",
    "TERNLIGHT_WEIGHT_PREFETCH=off",
    "TERNLIGHT_THREADS=1",
    process.execPath,
  ];
  for (const [args, dotProduct] of [
    [[], "dot2"],
    [["--dot-product", "dot4"], "dot4"],
  ] as const) {
    const { status, stdout, stderr } = await start([...run, "--json", ...args], host).ended;
    assert.equal(status, 0, stderr);
    const { model, tokens } = JSON.parse(stdout);
    assert.deepEqual([model.dotProduct, model.threads, tokens], [dotProduct, 1, expected.tokens]);
    assert.deepEqual([...new Set(Object.values(model.weightPrefetch))], ["off"]);
  }
  const { status, stderr } = await start([...run], ["env", "TERNLIGHT_DOT_PRODUCT=dot3", process.execPath]).ended;
  assert.equal(status, 2);
  assert.match(stderr, /TERNLIGHT_DOT_PRODUCT must be/);
});

test("for every size of the prompt's pieces", async () => {
  for (const size of ["1", "2", "5", "4096"]) {
    const args = ["--prefill-chunk", size, "--threads", "1"];
    assert.deepEqual((await json(...run, ...args)).tokens, expected.tokens, size);
    assert.equal((await json(...logits, ...args)).sha256, expected.sha256, size);
  }
});

test("in every runtime", async (context) => {
  for (const [name, program] of Object.entries(HOSTS)) {
    await context.test(name, { timeout: 60_000 }, async () => {
      const { status, stdout, stderr } = await start([...run, "--json"], program).ended;
      assert.equal(status, 0, stderr);
      assert.equal(stderr, "");
      assert.deepEqual(JSON.parse(stdout).tokens, expected.tokens);
      const failed = await start(["run", "nowhere.gguf", "-p", "a", "--json"], program).ended;
      assert.equal(failed.status, 1);
      assert.equal(JSON.parse(failed.stdout).error.code, "NotFound");
      assert.equal((await start(["run"], program).ended).status, 2);
    });
  }
});

test("a flavour that this runtime cannot run is refused by name", async () => {
  const { status, stdout } = await start([...run, "--flavour", "relaxed", "--json"], HOSTS["Node 20"]).ended;
  assert.equal(status, 1);
  const { code, detail } = JSON.parse(stdout).error;
  assert.equal(code, "UnsupportedOption");
  assert.equal(detail.option, "flavour");
});
