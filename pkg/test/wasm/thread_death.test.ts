/** A thread that is killed while the engine waits for it: nothing inside of wasm tells, and no message reaches the engine's worker. */

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const path = (name: string) => fileURLToPath(new URL(name, import.meta.url));

test("a thread that is killed is noticed within a second", { timeout: 60_000 }, async () => {
  const program = `
    import { load } from "ternlight";
    const begun = performance.now();
    const error = await load(new URL("models/ternlight-demo/", ${JSON.stringify(new URL("../../", import.meta.url).href)}), { threads: 2 })
      .then(() => ({}), (error) => error);
    console.log(JSON.stringify({ code: error.code, message: error.message, ms: performance.now() - begun }));
    process.exit();`;
  const { stdout } = await promisify(execFile)(
    process.execPath,
    ["--import", path("support/kill_thread.mjs"), "--input-type=module", "--eval", program],
    {
      cwd: path("../.."),
      env: { ...process.env, NODE_OPTIONS: `--import=${new URL("support/kill_thread.mjs", import.meta.url).href}` },
      timeout: 50_000,
    },
  );
  const { code, message, ms } = JSON.parse(stdout);
  assert.equal(code, "WorkerFailed", message);
  assert.match(message, /thread|worker ended/);
  // Loading the engine and the model is in it.
  assert.ok(ms < 5000, `${ms} ms`);
});
