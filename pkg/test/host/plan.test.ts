/** How many plans a load makes: each copies the descriptions of all tensors. */

import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { fileURLToPath } from "node:url";
import type { LoadContext } from "../../src/host/context.ts";
import { feed } from "../../src/host/feed.ts";
import { readHeaders } from "../../src/host/headers.ts";
import { planLoad } from "../../src/host/plan.ts";
import { forPlan } from "../../src/host/runtime.ts";
import { fetchFile, paths } from "../../src/platform/node.ts";
import { openFiles } from "../../src/source/files.ts";
import { builds } from "../../src/wasm/builds.ts";
import { compile, instantiate } from "../../src/wasm/load.ts";

const DEMO = fileURLToPath(new URL("../../models/ternlight-demo/", import.meta.url));
const { signal } = new AbortController();

/** An instance of the engine that counts its loaders, and the demo model's headers parsed in it. */
async function counted(context: TestContext) {
  const url = new URL("../../dist/single-relaxed.wasm", import.meta.url);
  const host = { startWorkers: () => Promise.reject(new Error("there are no threads here")) };
  const module = await compile(url, fetchFile);
  const { glue, memory } = instantiate(builds["single-relaxed"]!, module, { maximumBytes: 0, host });
  const count = { loaders: 0 };
  class Loader extends glue.Loader {
    constructor(...args: ConstructorParameters<typeof glue.Loader>) {
      super(...args);
      count.loaders++;
    }
  }
  const instance = { glue: { ...glue, Loader: Loader as typeof glue.Loader }, memory };
  const files = await openFiles({ kind: "folder", base: { kind: "path", path: DEMO } }, { paths, signal });
  context.after(() => Promise.all(files.weights.map((file) => file.close())));
  return { instance, files, headers: await readHeaders(instance.glue, files, signal), count };
}

test("a model that fits is planned once for its load", async (context) => {
  const { instance, files, headers, count } = await counted(context);
  const settings = { contextLength: 128 };
  const { loader, verdict } = await planLoad(instance.glue, headers, settings, { free: null });
  assert.equal(verdict.ok, true);
  const loadContext = { platform: null!, signal, onProgress() {}, onFatal() {}, threads: null! } satisfies LoadContext;
  const places = [{ instance, checkpoint: headers.checkpoint, loader }];
  const {
    loaders: [full],
  } = await feed({ places, files, settings: forPlan(settings) }, loadContext);
  assert.equal(full, loader);
  const engine = full!.finish();
  assert.equal(engine.contextLength, 128);
  assert.equal(count.loaders, 1);
});

test("one plan also tells what other settings would take", async (context) => {
  const { instance, headers, count } = await counted(context);
  const { needed } = (await planLoad(instance.glue, headers, {}, { free: null })).verdict;
  // Room for the weights and for little else.
  const { available } = (await planLoad(instance.glue, headers, {}, { free: 0 })).verdict;
  assert.equal(available, 0);
  const { available: all } = (await planLoad(instance.glue, headers, {}, { free: null })).verdict;
  const free = 2 ** 32 - all + needed.total - needed.kv / 2;
  const { verdict } = await planLoad(instance.glue, headers, {}, { free });
  assert.equal(verdict.ok, false);
  assert.ok(verdict.suggestion, JSON.stringify(verdict));
  assert.equal(count.loaders, 4, "one for each call");
});
