/** `canRun` on models of any size: only their headers are read, the rest of their files is a hole. */

import assert from "node:assert/strict";
import { open } from "node:fs/promises";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { canRun, inspect, load } from "ternlight";
import { folderOf, goldenPath } from "./support/models.ts";
import { serveFiles } from "./support/server.ts";
import { partName } from "./support/split.ts";
import { Writer } from "./support/writer.ts";

const GB = 2 ** 30;
const DEMO = new URL("../../models/ternlight-demo/", import.meta.url);

interface Shape {
  layers: number;
  hidden: number;
  ffn: number;
  vocab: number;
  context: number;
}

/** A llama of this shape in Q1_0: its header, and how long its file would be. */
function header({ layers, hidden, ffn, vocab, context }: Shape): { bytes: Uint8Array; size: number } {
  const writer = new Writer();
  const heads = hidden / 128;
  const numbers = {
    block_count: layers,
    embedding_length: hidden,
    feed_forward_length: ffn,
    context_length: context,
    "attention.head_count": heads,
    "attention.head_count_kv": heads,
  };
  const layer: [string, number, number][] = [
    ["attn_q", hidden, hidden],
    ["attn_k", hidden, hidden],
    ["attn_v", hidden, hidden],
    ["attn_output", hidden, hidden],
    ["ffn_gate", ffn, hidden],
    ["ffn_up", ffn, hidden],
    ["ffn_down", hidden, ffn],
    ["attn_norm", 0, hidden],
    ["ffn_norm", 0, hidden],
  ];
  const tensors: [string, number, number][] = [
    ["token_embd", vocab, hidden],
    ["output_norm", 0, hidden],
    ...Array.from({ length: layers }, (_, i) =>
      layer.map(([name, rows, cols]): [string, number, number] => [`blk.${i}.${name}`, rows, cols]),
    ).flat(),
  ];
  writer.bytes(new TextEncoder().encode("GGUF")).u32(3).u64(tensors.length);
  writer.u64(Object.keys(numbers).length + 2);
  writer.string("general.architecture").u32(8).string("llama");
  for (const [key, value] of Object.entries(numbers)) writer.string(`llama.${key}`).u32(4).u32(value);
  writer
    .string("llama.attention.layer_norm_rms_epsilon")
    .u32(6)
    .bytes(new Uint8Array(new Float32Array([1e-5]).buffer));
  let offset = 0;
  for (const [name, rows, cols] of tensors) {
    writer
      .string(`${name}.weight`)
      .u32(rows ? 2 : 1)
      .u64(cols);
    if (rows) writer.u64(rows);
    writer.u32(rows ? 41 : 0).u64(offset);
    offset += Math.ceil((rows ? ((rows * cols) / 128) * 18 : 4 * cols) / 32) * 32;
  }
  const bytes = writer.pad(32).done();
  return { bytes, size: bytes.length + offset };
}

async function fileOf(context: TestContext, shape: Shape): Promise<string> {
  const { bytes, size } = header(shape);
  const file = path.join(await folderOf(context, {}), "big.gguf");
  const handle = await open(file, "w");
  await handle.write(bytes);
  await handle.truncate(size);
  await handle.close();
  return file;
}

/** 700 MB of weights and a very long context. */
const long: Shape = { layers: 24, hidden: 4096, ffn: 11264, vocab: 32000, context: 262144 };

test("a small model fits", async () => {
  const model = goldenPath("gguf/qwen3.Q1_0.gguf");
  const answer = await canRun(model);
  const { memory } = await inspect(model);
  assert.deepEqual(answer, { ok: true, needed: memory, available: answer.available, heads: answer.heads });
  assert.ok(answer.available > memory.total && answer.available < 4 * GB);
  assert.ok((await canRun(goldenPath("models/llama_f32"), { contextLength: 64, kvCacheType: "f32" })).ok);
});

test("what does not fit comes with the longest context that does", async (context) => {
  const model = await fileOf(context, long);
  const asked = { contextLength: 131072, kvCacheType: "f32" } as const;
  const { ok, needed, available, reason, suggestion } = await canRun(model, asked);
  assert.equal(ok, false);
  assert.ok(needed.total > available && needed.weights < GB, JSON.stringify(needed));
  assert.equal(needed.total, needed.weights + needed.kv + needed.scratch);
  assert.match(reason!, /^the model needs \d+ bytes, .* has .*\d+ bytes for it$/);
  assert.equal(suggestion?.kvCacheType, "f16");
  const { contextLength = 0 } = suggestion;
  assert.ok(contextLength >= 256 && contextLength < 131072, `${contextLength} positions`);

  assert.ok((await canRun(model, { ...asked, ...suggestion })).ok, "the suggestion fits");
  const longer = { ...asked, ...suggestion, contextLength: contextLength + 64 };
  const more = await canRun(model, longer);
  assert.ok(!more.ok || more.parts === 2, "a longer context does not fit into one memory");
});

test("half the cache may be enough", async (context) => {
  // 2.1 GB of cache as f16, in one layer: there is room for it once, not twice.
  const model = await fileOf(context, { ...long, layers: 1, hidden: 2048, ffn: 5632 });
  const f32 = await canRun(model, { contextLength: 262144, kvCacheType: "f32" });
  assert.deepEqual([f32.ok, f32.suggestion], [false, { kvCacheType: "f16" }], JSON.stringify(f32));
});

test("a memory that is given counts, and what fits into it is suggested", async () => {
  const all = await canRun(DEMO);
  const none = await canRun(DEMO, { memory: 8e6 });
  assert.deepEqual([none.ok, none.available, none.parts], [false, 8e6, undefined]);
  assert.match(none.reason!, /^the model needs \d+ bytes, and may have 8000000$/);
  assert.ok(none.heads.every(({ ok, memory }) => ok === memory.total <= 8e6));
  const near = await canRun(DEMO, { memory: 8e6, ...none.suggestion });
  assert.ok(none.suggestion && near.ok && near.needed.total < all.needed.total, JSON.stringify(none.suggestion));
  // Chunks get shorter before the context does.
  assert.equal(none.suggestion.contextLength, undefined);
  const few = await canRun(DEMO, { memory: 1e6 });
  assert.deepEqual([few.ok, few.suggestion], [false, undefined]);
  assert.ok((await canRun(DEMO, { memory: 2 ** 50 })).ok);
});

test("a model larger than one memory takes several of about the same size", async (context) => {
  const model = await fileOf(context, long);
  const asked = { contextLength: 512, prefillChunk: 16 };
  const whole = await canRun(model, asked);
  assert.deepEqual([whole.ok, whole.parts], [true, undefined]);
  for (const parts of [2, 3, 5]) {
    const found = await canRun(model, { ...asked, maxPartBytes: Math.ceil((1.2 * whole.needed.total) / parts) });
    assert.deepEqual([found.ok, found.parts], [true, parts], JSON.stringify(found));
    for (const name of ["weights", "kv"] as const) assert.equal(found.needed[name], whole.needed[name]);
    // Each has scratch memory of its own.
    const more = found.needed.total - whole.needed.total;
    assert.ok(more > 0 && more < parts * whole.needed.scratch, String(more));
  }
  const tooMany = await canRun(model, { ...asked, maxPartBytes: Math.ceil(whole.needed.total / 12) });
  assert.equal(tooMany.ok, false, "there are 8 memories at most");
});

test("weights that are too large leave nothing to suggest", async (context) => {
  const model = await fileOf(context, { ...long, layers: 1, hidden: 65536, ffn: 65536 });
  const { ok, reason, suggestion } = await canRun(model);
  assert.deepEqual([ok, suggestion], [false, undefined]);
  assert.match(reason!, /too few even for a context of 256 positions/);
});

test("load refuses what WebAssembly cannot hold with the same words", async (context) => {
  const model = await fileOf(context, long);
  const options = { contextLength: 262144, threads: 1 };
  const { needed, suggestion } = await canRun(model, options);
  assert.ok(suggestion);
  await assert.rejects(load(model, options), (error: Error & { code: string; detail: Record<string, unknown> }) => {
    assert.equal(error.code, "OutOfMemory");
    assert.match(error.message, /WebAssembly has at most/);
    assert.equal(error.detail.needed, needed.total);
    assert.ok((error.detail.available as number) < 4 * GB);
    assert.ok((error.detail.suggestion as { contextLength: number }).contextLength >= 256);
    return true;
  });
});

test("a load that may take the nearest setting says which one", async (context) => {
  // 4.3 GB of cache as f32, and weights of some megabytes.
  const shape = { layers: 1, hidden: 2048, ffn: 1024, vocab: 1024, context: 262144 };
  const model = await fileOf(context, shape);
  const asked = { contextLength: 262144, kvCacheType: "f32", threads: 1 } as const;
  await assert.rejects(load(model, asked), { code: "OutOfMemory" });
  const loaded = await load(model, { ...asked, fit: "auto" });
  context.after(() => loaded.close());
  const { kvCacheType, contextLength, warnings } = loaded.info;
  assert.equal(kvCacheType, "f16");
  const found = warnings.filter((warning) => warning.startsWith("fit: "));
  assert.equal(found.length, 1);
  assert.match(found[0]!, /^fit: kvCacheType f16.* was taken, because the model needs \d+ bytes, /);
  assert.ok(contextLength === 262144 || found[0]!.includes(`contextLength ${contextLength}`), found[0]);
  // What fits is left as it was asked for, and what cannot fit is an error all the same.
  const small = await load(goldenPath("gguf/qwen3.Q1_0.gguf"), { fit: "auto", threads: 1 });
  assert.ok(!small.info.warnings.some((warning) => warning.startsWith("fit")));
  await small.close();
  // One layer of 5 GB, which no split makes smaller.
  const huge = await fileOf(context, { ...long, layers: 1, hidden: 65_536, ffn: 65_536 });
  await assert.rejects(load(huge, { fit: "auto", threads: 1 }), { code: "OutOfMemory" });
});

test("only headers are read", async (context) => {
  const { bytes, size } = header(long);
  const beginning = new Uint8Array(300 << 10);
  beginning.set(bytes);
  const { url, asked } = await serveFiles(
    context,
    { "big.gguf": beginning },
    { announce: (headers) => ({ ...headers, "content-range": headers["content-range"]!.replace(/\/.*/, `/${size}`) }) },
  );
  await canRun(`${url}big.gguf`);
  assert.deepEqual(
    asked.map(({ range }) => range),
    ["bytes=0-262143"],
  );
});

test("what cannot run at all is an error", async () => {
  const missing = new File([new Uint8Array(9)], partName("x", 0, 2, "gguf"));
  await assert.rejects(canRun(missing), { code: "NotFound" });
  await assert.rejects(canRun(new Uint8Array(64)), { code: "BadMagic" });
  await assert.rejects(canRun(goldenPath("gguf/none.gguf")), { code: "NotFound" });
  await assert.rejects(canRun(goldenPath("gguf/qwen3.Q1_0.gguf"), { contextLength: 1e6 }), { code: "InvalidArgument" });
  await assert.rejects(canRun("x.gguf", { context: 3 } as never), /canRun: there is no option "context"/);
});

test("what fits loads, also where it takes more than half of what can be addressed", async (context) => {
  const model = await fileOf(context, { layers: 8, hidden: 1024, ffn: 2816, vocab: 4096, context: 65536 });
  const options = { contextLength: 40000, kvCacheType: "f32" } as const;
  const { ok, needed } = await canRun(model, options);
  assert.ok(ok && needed.total > 2.4 * GB && needed.total < 3 * GB, `${needed.total} bytes`);
  for (const threads of [1, 2]) {
    const loaded = await load(model, { ...options, threads });
    assert.equal(loaded.info.contextLength, 40000);
    assert.ok(loaded.info.memoryBytes >= needed.total, `${loaded.info.memoryBytes} of ${needed.total}`);
    const { tokens } = await loaded.generate([1, 2, 3], { maxTokens: 2, temperature: 0, ignoreEos: true }).finished;
    assert.equal(tokens.length, 2);
    await loaded.close();
  }
});
