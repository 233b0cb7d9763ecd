/** Thresholds of health on a server: those of a calibration decide, and what is no threshold is refused. */

import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { done, failure, DEMO as NAME } from "../cli/support/ternlight.ts";
import { body } from "./support/app.ts";
import { serve } from "./support/command.ts";

test("a server watches with the thresholds that a calibration wrote, and with the share that is given", async (context) => {
  const folder = await mkdtemp(path.join(tmpdir(), "ternlight-thresholds-"));
  context.after(() => rm(folder, { recursive: true, force: true }));
  const file = path.join(folder, "thresholds.json");
  await done("health", NAME, "-n", "48", "--threads", "1", "--calibrate", file);
  const own = JSON.parse(await readFile(file, "utf8"));
  assert.ok(own.perplexity.warn > 0 && own.kvEntropy.warn > 0, JSON.stringify(own));
  const server = await serve(context, ["--health-thresholds", file, "--health-share", "1"]);
  const ask = { model: "ternlight-demo", prompt: "Once upon a time", max_tokens: 4, temperature: 0 };
  await body(fetch(`${server.url}/v1/completions`, { method: "POST", body: JSON.stringify(ask) }));
  const text = await (await fetch(`${server.url}/metrics`)).text();
  const threshold = (signal: string, state: string) => {
    const sample = new RegExp(`^ternlight_health_threshold\\{.*signal="${signal}".*state="${state}".*\\} (.+)$`, "m");
    return Number(sample.exec(text)?.[1]);
  };
  for (const [signal, limits] of Object.entries<Record<string, number>>(own))
    for (const state of ["warn", "alert"]) assert.equal(threshold(signal, state), limits[state], `${signal} ${state}`);
  // With a whole core every step is looked at, so that the first answer has a perplexity.
  assert.match(text, /^ternlight_health_value\{.*signal="perplexity".*\} [\d.]+$/m);

  for (const [wrong, told] of [
    ['{"perplexty": {"warn": 1, "alert": 2}}', /names "perplexty"/],
    ['{"perplexity": {"warn": 1}}', /a number at perplexity\.alert/],
    ["[]", /must have an object/],
    ["{", /is not JSON/],
  ] as const) {
    await writeFile(file, wrong);
    const { code, message } = await failure(1, "serve", NAME, "--port", "0", "--health-thresholds", file);
    assert.equal(code, "BadValue");
    assert.match(message, told);
  }
});
