/** The routes that only a page has: handles of a folder and of files, and what a drop brings. */

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { open, page, serve } from "../package/support.mjs";
import { folderOf, goldenFile, goldenFolder, goldenPath, logitsOf } from "./support/models.ts";
import { shardSafetensors, splitGguf } from "./support/split.ts";

const dist = fileURLToPath(new URL("../../dist/", import.meta.url));

/** Prints what each route's logits hash to; `files` names each model's files. */
const program = (models) => `
  import { canRun, load } from "/ternlight/index.js";

  const hex = (bytes) => [...new Uint8Array(bytes)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  async function hash(source) {
    const model = await load(source, { threads: 1 });
    const rows = await model.logits([1, 5, 9, 2, 30, 77, 4, 12], { all: true });
    await model.close();
    return hex(await crypto.subtle.digest("SHA-256", await new Blob(rows).arrayBuffer()));
  }

  const printed = {};
  const root = await navigator.storage.getDirectory();
  for (const [name, files] of Object.entries(${JSON.stringify(models)})) {
    const dropped = [];
    const directory = await root.getDirectoryHandle(name, { create: true });
    for (const file of files) {
      const blob = await (await fetch("/models/" + name + "/" + file)).blob();
      dropped.push(new File([blob], file));
      const writable = await (await directory.getFileHandle(file, { create: true })).createWritable();
      await blob.stream().pipeTo(writable);
    }
    const transfer = new DataTransfer();
    for (const file of dropped) transfer.items.add(file);
    const handles = await Promise.all(files.map((file) => directory.getFileHandle(file)));
    printed[name] = {
      directory: await hash(directory),
      files: await hash(dropped),
      list: await hash(transfer.files),
      handles: await hash(handles),
      url: await hash("/models/" + name + "/" + (files.find((file) => file.endsWith(".gguf")) ?? "")),
      ok: (await canRun(directory)).ok,
    };
  }
  document.querySelector("output").textContent = JSON.stringify(printed);
`;

test("a page loads parts from handles, drops and addresses", { timeout: 60_000 }, async (context) => {
  const gguf = "gguf/llama_bitlinear.TQ2_0.gguf";
  const { "model.safetensors": whole, ...side } = await goldenFolder("models/bitnet_packed");
  const { files, weightMap } = shardSafetensors(whole, 2);
  const index = new TextEncoder().encode(JSON.stringify({ weight_map: weightMap }));
  const models = {
    gguf: splitGguf(await goldenFile(gguf), "tiny", 2),
    shards: { ...side, ...files, "model.safetensors.index.json": index },
  };
  const names = Object.fromEntries(Object.entries(models).map(([name, files]) => [name, Object.keys(files)]));
  const texts = { "index.html": page("./main.js"), "main.js": program(names) };
  const encoded = Object.entries(texts).map(([name, text]) => [name, new TextEncoder().encode(text)]);
  const mounts = { "/": await folderOf(context, Object.fromEntries(encoded)), "/ternlight/": dist };
  for (const [name, files] of Object.entries(models)) mounts[`/models/${name}/`] = await folderOf(context, files);
  const server = await serve({ mounts });
  context.after(() => server.close());

  const expected = {};
  for (const [name, model] of Object.entries({ gguf, shards: "models/bitnet_packed" })) {
    const hash = createHash("sha256");
    for (const row of await logitsOf(goldenPath(model))) hash.update(row);
    const digest = hash.digest("hex");
    expected[name] = { directory: digest, files: digest, list: digest, handles: digest, url: digest, ok: true };
  }
  const { printed, seen } = await open(context, server.url);
  assert.deepEqual(JSON.parse(printed), expected, seen.join("\n"));
});
