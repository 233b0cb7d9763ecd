import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { type FileSource, inspect, load, type ModelSource, type Progress } from "ternlight";
import { CONTINUATION, DEMO, demo, failure, GREEDY, ONCE } from "./support/model.ts";

const FILES = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"];

test("the same model from every kind of source", async (context) => {
  const folder = fileURLToPath(DEMO);
  const named = async (make: (bytes: Uint8Array<ArrayBuffer>) => FileSource) =>
    Object.fromEntries(
      await Promise.all(FILES.map(async (name) => [name, make(new Uint8Array(await readFile(folder + name)))])),
    );
  const sources: [string, ModelSource][] = [
    ["a file: URL of a folder", DEMO],
    ["a path with a slash", folder],
    ["a path without", folder.replace(/\/$/, "")],
    ["the path of its weights", `${folder}model.safetensors`],
    ["bytes by name", await named((bytes) => bytes)],
    ["buffers by name", await named((bytes) => bytes.buffer)],
    ["blobs by name", await named((bytes) => new Blob([bytes]))],
    ["URLs by name", Object.fromEntries(FILES.map((name) => [name, new URL(name, DEMO)]))],
  ];
  for (const [name, source] of sources) {
    await context.test(name, async () => {
      const model = await load(source, { threads: 1 });
      try {
        assert.equal(await model.generate("Once upon a time", GREEDY).text(), CONTINUATION.text);
      } finally {
        await model.close();
      }
    });
  }
  const gguf = new URL("../../../tests/golden/gguf/llama_bf16.Q8_0.gguf", import.meta.url);
  const bytes = new Uint8Array(await readFile(gguf));
  const expected = await inspect(gguf);
  for (const source of [fileURLToPath(gguf), bytes, bytes.slice().buffer, new Blob([bytes])])
    assert.deepEqual(await inspect(source), expected);
});

test("every build computes in the room that inspect() tells", async () => {
  const gguf = new URL("../../../tests/golden/gguf/llama_bitlinear.TQ2_0.gguf", import.meta.url);
  const rooms = await Promise.all(
    (["simd128", "relaxed"] as const).map(async (flavour) => {
      const model = await load(gguf, { threads: 1, flavour });
      const { scratch } = model.info.memory;
      await model.close();
      return scratch;
    }),
  );
  // Strict SIMD has tables for a few rows of a batch, which take no more than the planes of all.
  const told = (await inspect(gguf)).memory.scratch;
  for (const room of rooms) assert.ok(Math.abs(room / told - 1) < 0.01, `${room} of ${told} bytes`);
});

test("progress is told in order", async (context) => {
  const told: Progress[] = [];
  const model = await demo(context, { onProgress: (progress) => told.push(progress) });
  const phases = told.map(({ phase }) => phase).filter((phase, i, all) => phase !== all[i - 1]);
  assert.deepEqual(phases, ["header", "download", "pack", "ready"]);
  const loads = told.filter(({ phase }) => phase === "download");
  const total = loads[0]!.total;
  assert.equal(loads[0]!.loaded, 0);
  for (const [i, { loaded, ...rest }] of loads.entries()) {
    assert.ok(i === 0 || loaded >= loads[i - 1]!.loaded);
    assert.equal(rest.total, total);
  }
  for (const last of [loads.at(-1)!, told.at(-1)!]) assert.deepEqual([last.loaded, last.total], [total, total]);
  // All of the file but its header, or less.
  assert.ok(total > 3_200_000 && total <= 3_307_564, String(total));
  assert.ok(model.info.memoryBytes >= model.info.memory.weights);
});

test("info says what runs", async (context) => {
  const model = await demo(context, {
    contextLength: 100,
    kvCacheType: "f16",
    activations: "int14",
    flavour: "simd128",
  });
  const { info } = model;
  assert.deepEqual(
    [info.flavour, info.threads, info.contextLength, info.kvCacheType, info.activations, info.vocab],
    ["single-simd128", 1, 100, "f16", "int14", 4096],
  );
  assert.ok(info.memoryBytes >= info.memory.total);
  const { tokens } = await model.generate(ONCE, GREEDY).finished;
  assert.deepEqual(tokens.slice(0, 3), CONTINUATION.tokens.slice(0, 3));
});

test("wrong options are refused by name before anything is read", async (context) => {
  const loads: [object, RegExp, string][] = [
    [{ thread: 2 }, /no option "thread"; did you mean threads\? There are .*threads/, "thread"],
    [{ threads: 0 }, /threads must be an integer from 1/, "threads"],
    [{ threads: 1.5 }, /threads must be an integer/, "threads"],
    [{ flavour: "fast" }, /flavour must be "auto"/, "flavour"],
    [{ contextLength: "many" }, /contextLength must be an integer.*"many"/, "contextLength"],
    [{ kvCacheType: "q6" }, /kvCacheType must be "auto", "f32", "f16", "fp8", "q8", "q4", "q2"/, "kvCacheType"],
    [{ activations: 8 }, /activations must be/, "activations"],
    [{ prefillChunk: 0 }, /prefillChunk must be/, "prefillChunk"],
    [{ signal: {} }, /signal must be an AbortSignal/, "signal"],
    [{ onProgress: true }, /onProgress must be a function/, "onProgress"],
    [{ repack: "no" }, /repack must be true or false/, "repack"],
    [{ i2s: 64 }, /i2s must be "auto", "128", "64", not 64/, "i2s"],
    [{ chatTemplate: "" }, /chatTemplate must be/, "chatTemplate"],
  ];
  for (const [options, message, option] of loads) {
    const error = await failure(() => load("nowhere", options));
    assert.equal(error.code, "InvalidArgument");
    assert.match(error.message, message);
    assert.equal(error.detail.option, option);
  }
  for (const source of ["", 7, null, { "config.json": 3 }]) {
    assert.equal((await failure(() => load(source as never))).code, "InvalidArgument", JSON.stringify(source));
  }
  assert.equal((await failure(() => load([]))).code, "NotFound");

  const model = await demo(context);
  const generates: [unknown, RegExp][] = [
    [{ maxToken: 3 }, /no option "maxToken"/],
    [{ maxTokens: -1 }, /maxTokens must be/],
    [{ temperature: -0.1 }, /temperature must be a number from 0/],
    [{ temperature: Number.NaN }, /temperature must be/],
    [{ topK: 2.5 }, /topK must be an integer/],
    [{ topP: 1.1 }, /topP must be/],
    [{ minP: "0" }, /minP must be/],
    [{ repetitionPenalty: 0 }, /repetitionPenalty must be/],
    [{ seed: -1 }, /seed must be/],
    [{ seed: 2 ** 53 }, /seed must be/],
    [{ stop: [1] }, /stop must be/],
    [{ ignoreEos: 1 }, /ignoreEos must be true or false/],
    [null, /options must be an object/],
  ];
  for (const [options, message] of generates) {
    const error = await failure(() => model.generate(ONCE, options as never).finished);
    assert.equal(error.code, "InvalidArgument");
    assert.match(error.message, message);
  }
  const calls: (() => unknown)[] = [
    () => model.generate(7 as never).finished,
    () => model.generate([1.5]).finished,
    () => model.generate([-1]).finished,
    () => model.generate([4096]).finished,
    () => model.generate([]).finished,
    () => model.generate("").finished,
    () => model.chat([]).finished,
    () => model.chat("Hi" as never).finished,
    () => model.logits([]),
    () => model.logits("1" as never),
    () => model.logits([1], { every: true } as never),
    () => model.tokenize(1 as never),
    () => model.detokenize("1" as never),
    () => model.perplexity("x"),
    () => model.perplexity("x y z", { window: 1 }),
  ];
  for (const call of calls) assert.equal((await failure(call)).code, "InvalidArgument", String(call));
  assert.deepEqual(
    (await model.generate(ONCE, { ...GREEDY, topK: undefined } as never).finished).tokens,
    CONTINUATION.tokens,
  );
});

test("settings that the model cannot take", async () => {
  const { code, detail } = await failure(() => load(DEMO, { contextLength: 100_000 }));
  assert.equal(code, "InvalidArgument");
  assert.equal(detail.option, "contextLength");
});
