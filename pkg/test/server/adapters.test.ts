/** Adapters as models of their own, and those that requests load and unload. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { load } from "ternlight";
import { createApp } from "ternlight/server";
import { asked, body, error } from "./support/app.ts";

const file = (name: string) => new URL(`../../../tests/golden/${name}`, import.meta.url);
const BASE = file("models/llama_f32/");
const PEFT = file("lora/llama_f32.lora/");
const input = [[1, 2, 3, 4, 5]];

test("an adapter is a model of its own, with a parent", async (context) => {
  const app = asked(
    createApp({
      models: { base: (more) => load(BASE, { threads: 1, ...more }) },
      adapters: { base: { tuned: PEFT } },
      adapterSource: (path) => path,
    }),
  );
  context.after(() => app.close());
  await app.ready;
  const model = await load(BASE, { threads: 1 });
  context.after(() => model.close());
  await model.loadAdapter(PEFT, { name: "own" });
  const plain = [...(await model.embed(input))[0]!];
  const tuned = [...(await model.embed(input, { adapters: [{ name: "own" }] }))[0]!];
  const halved = [...(await model.embed(input, { adapters: [{ name: "own", scale: 0.5 }] }))[0]!];
  assert.notDeepEqual(plain, tuned);
  const embedded = async (name: string) =>
    (await body(app.post("/v1/embeddings", { model: name, input }))).data[0].embedding;

  const { data } = await body(app.get("/v1/models"));
  assert.deepEqual(
    data.map(({ id, parent }: { id: string; parent?: string }) => [id, parent]),
    [
      ["base", undefined],
      ["tuned", "base"],
    ],
  );
  assert.ok(data.every(({ created }: { created: number }) => created > 1.7e9));
  assert.equal((await body(app.get("/v1/models/tuned"))).parent, "base");
  assert.deepEqual(await embedded("base"), plain);
  assert.deepEqual(await embedded("tuned"), tuned);

  // llama-server's calls.
  assert.deepEqual(await body(app.get("/lora-adapters")), [{ id: 0, path: "tuned", scale: 0 }]);
  await body(app.post("/lora-adapters", [{ id: 0, scale: 0.5 }]));
  assert.deepEqual(await embedded("base"), halved);
  await body(app.post("/lora-adapters", []));
  assert.deepEqual(await embedded("base"), plain);
  await error(app.post("/lora-adapters", [{ id: 3, scale: 1 }]), 400);

  // vLLM's.
  const loading = { lora_name: "second", lora_path: fileURLToPath(PEFT) };
  assert.equal((await app.post("/v1/load_lora_adapter", loading)).status, 200);
  assert.deepEqual(await embedded("second"), tuned);
  assert.equal((await error(app.post("/v1/load_lora_adapter", loading), 400)).param, "lora_name");
  assert.equal((await app.post("/v1/unload_lora_adapter", { lora_name: "second" })).status, 200);
  await error(app.post("/v1/embeddings", { model: "second", input }), 404);
  await error(app.post("/v1/unload_lora_adapter", { lora_name: "second" }), 404);
  const missing = await error(
    app.post("/v1/load_lora_adapter", { lora_name: "x", lora_path: "/nowhere/adapter" }),
    404,
  );
  assert.ok(!missing.message.includes("nowhere"));
});

test("where nobody allows it, requests load nothing", async (context) => {
  const app = asked(createApp({ models: { base: (more) => load(BASE, { threads: 1, ...more }) } }));
  context.after(() => app.close());
  await app.ready;
  assert.equal(
    (await error(app.post("/v1/load_lora_adapter", { lora_name: "x", lora_path: "y" }), 403)).code,
    "adapters_locked",
  );
});
