/** `userTiming`: what was done when, in the timeline of whoever loads. */

import assert from "node:assert/strict";
import { mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { setTimeout } from "node:timers/promises";
import { cache, type LoadOptions, load, type Model } from "ternlight";
import { synthetic } from "../../src/bench/synthetic.ts";
import { demo, GREEDY, ONCE } from "./support/model.ts";

interface Entry {
  name: string;
  start: number;
  end: number;
  track: string;
  properties: Record<string, string>;
}

/** What is noted of a load and of what is done with the model. */
async function noted(
  context: TestContext,
  options: LoadOptions,
  work: (model: Model) => Promise<unknown>,
): Promise<Entry[]> {
  performance.clearMeasures();
  await work(await demo(context, options));
  return performance.getEntriesByType("measure").map((entry) => {
    const { name, startTime: start, duration } = entry;
    const { devtools } = (entry as PerformanceMeasure).detail;
    const { dataType, trackGroup, track, color, properties, tooltipText } = devtools;
    assert.deepEqual([dataType, trackGroup], ["track-entry", "ternlight"]);
    assert.match(color, /^(primary|secondary|tertiary)$/);
    assert.ok(tooltipText.startsWith(name));
    return { name, start, end: start + duration, track, properties: Object.fromEntries(properties) };
  });
}

test("a load's phases follow each other within it, by the owner's clock", async (context) => {
  const before = performance.now();
  const entries = await noted(context, { userTiming: true }, async () => {});
  const after = performance.now();
  const found = (name: string) => entries.find((entry) => entry.name === name)!;
  const whole = found("load");
  // Clocks of threads are set apart by less than this.
  const slack = 50;
  assert.ok(
    before - slack <= whole.start && whole.end <= after + slack,
    `${before} ${whole.start} ${whole.end} ${after}`,
  );
  let at = whole.start;
  for (const name of ["compile", "header", "threads", "plan", "read and pack", "engine", "kernels"]) {
    const phase = found(name);
    assert.equal(phase.track, "load");
    assert.ok(phase.start >= at - 1e-3 && phase.end >= phase.start && phase.end <= whole.end + 1e-3, name);
    at = phase.end;
  }
  assert.equal(found("tokenizer").track, "tokenizer");
  assert.ok(Number(found("read and pack").properties.bytes) > 3e6);
});

test("what was measured of the kernels decides the next load, where it is kept", async (context) => {
  const directory = await mkdtemp(join(tmpdir(), "ternlight-"));
  context.after(() => rm(directory, { recursive: true }));
  const measured = async (options: LoadOptions) => {
    let prefetch = {};
    const entries = await noted(context, { userTiming: true, cache: directory, ...options }, async ({ info }) => {
      prefetch = info.weightPrefetch;
    });
    const { properties } = entries.find(({ name }) => name === "kernels")!;
    return [properties.measured, prefetch] as const;
  };
  const records = async () => (await readdir(directory)).filter((name) => /^tuning-[0-9a-f]{16}$/.test(name));

  assert.equal((await measured({ cache: false }))[0], "true");
  assert.deepEqual(await records(), [], "nothing is kept without a cache");
  const [first, found] = await measured({});
  assert.equal(first, "true");
  // It is written behind the load.
  await wait(async () => (await records()).length > 0);
  const [name] = await records();
  const file = join(directory, name!);
  const { size } = await stat(file);
  const text = await readFile(file, "utf8");
  const kept = JSON.parse(text);
  const kinds = Object.keys(found).length;
  const undecided = () => kept.weightPrefetch.some((choice: number, i: number) => i % 2 === 1 && choice > 2);
  if (!undecided()) {
    assert.deepEqual(await measured({}), ["false", found]);
    kept.weightPrefetch[1] += 3;
    await writeFile(file, JSON.stringify(kept).padEnd(size));
  }

  // What was not decided is measured once more, and kept then.
  assert.equal((await measured({}))[0], "true");
  await wait(async () => (await readFile(file, "utf8")) !== JSON.stringify(kept).padEnd(size));
  assert.equal((await measured({}))[0], "false");

  // Another choice that is kept is taken as it is.
  for (let i = 1; i < 2 * kinds; i += 2) kept.weightPrefetch[i] = 0;
  await writeFile(file, JSON.stringify(kept).padEnd(size));
  const [again, off] = await measured({});
  assert.equal(again, "false");
  assert.deepEqual(new Set(Object.values(off)), new Set(["off"]));
  assert.equal((await measured({ weightPrefetch: "pages" }))[0], "true", "what is asked for goes before what is kept");
  assert.equal(await readFile(file, "utf8"), JSON.stringify(kept).padEnd(size), "and is not kept");

  for (const damaged of ["", "{", "null", "[1]".padEnd(size), '{"weightPrefetch":[99,9],"at":9e99}'.padEnd(size)]) {
    await writeFile(file, damaged);
    assert.equal((await measured({}))[0], "true", `a record that is ${JSON.stringify(damaged.trim())}`);
    await wait(async () => (await readFile(file, "utf8")).startsWith('{"dotProduct":"dot'));
  }
  // A load without time to decide leaves it to the next one.
  await measured({});
  assert.equal((await measured({}))[0], "false");
  const old = JSON.parse(await readFile(file, "utf8"));
  old.at -= 8 * 24 * 3600 * 1000;
  await writeFile(file, JSON.stringify(old).padEnd(size));
  assert.equal((await measured({}))[0], "true", "a record of last week");

  // Caches hold more of a smaller model, which says nothing of this one.
  const smaller = await load(synthetic({ shape: "fairy,layers=1,vocab=256" }), { threads: 1, cache: directory });
  await smaller.close();
  await wait(async () => (await records()).length === 2);
  await measured({});
  assert.equal((await measured({}))[0], "false");
  await cache.delete(undefined, { directory });
  assert.deepEqual(await records(), []);
});

test("every kind of weights is told with what is touched ahead of it, by its name", async () => {
  const kinds = { q8_0: "8-bit", q6_k: "6-bit K", f32: "f32", f16: "f16", bf16: "bf16" };
  for (const [embedding, name] of Object.entries(kinds)) {
    const source = synthetic({ shape: "fairy,layers=1,vocab=256", embedding });
    const model = await load(source, { threads: 1, cache: false, weightPrefetch: "near" });
    assert.deepEqual(model.info.weightPrefetch, { "2-bit": "near", [name]: "near" });
    await model.close();
  }
});

async function wait(is: () => Promise<boolean>): Promise<void> {
  for (const end = Date.now() + 20_000; !(await is()); await setTimeout(10)) assert.ok(Date.now() < end, "in time");
}

test("each piece of a prompt and each step of an answer, for every request", async (context) => {
  const prompt = Array.from({ length: 70 }, (_, i) => 5 + i);
  const entries = await noted(context, { userTiming: true, prefillChunk: 32 }, (model) =>
    Promise.all([
      model.generate(prompt, { ...GREEDY, maxTokens: 5 }).finished,
      model.generate(ONCE, { ...GREEDY, maxTokens: 3 }).finished,
    ]),
  );
  const tracks = Map.groupBy(
    entries.filter(({ track }) => track.startsWith("request")),
    ({ track }) => track,
  );
  const told = [...tracks.values()].map((steps) => {
    assert.ok(steps.every(({ start, end }, i) => end >= start && (i === 0 || start >= steps[i - 1]!.end - 1e-3)));
    assert.ok(steps.some(({ properties }) => properties["requests in the batch"] === "2"));
    const kind = (kind: string) => steps.filter(({ name }) => name.startsWith(kind));
    let next = 0;
    for (const { name, properties } of steps) {
      assert.equal(Number(properties.position), next, "none is left out");
      assert.equal(name.split(" ")[1], properties.tokens);
      next += Number(properties.tokens);
    }
    return { pieces: kind("prefill").length, decodes: kind("decode").length, positions: next };
  });
  // The first token comes with the prompt, and nothing is computed of the last.
  told.sort((a, b) => b.positions - a.positions);
  assert.equal(told.length, 2);
  assert.ok(told[0]!.pieces >= 3, "70 tokens in pieces of at most 32");
  assert.deepEqual(
    told.map(({ decodes, positions }) => [decodes, positions]),
    [
      [4, 70 + 4],
      [2, ONCE.length + 2],
    ],
  );
});

test("nothing is noted without them", async (context) => {
  assert.deepEqual(await noted(context, {}, (model) => model.generate(ONCE, GREEDY).text()), []);
});
