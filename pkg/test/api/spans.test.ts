/** `userTiming`: what was done when, in the timeline of whoever loads. */

import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import type { LoadOptions, Model } from "ternlight";
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
  for (const name of ["compile", "header", "threads", "plan", "read and pack", "engine"]) {
    const phase = found(name);
    assert.equal(phase.track, "load");
    assert.ok(phase.start >= at - 1e-3 && phase.end >= phase.start && phase.end <= whole.end + 1e-3, name);
    at = phase.end;
  }
  assert.equal(found("tokenizer").track, "tokenizer");
  assert.ok(Number(found("read and pack").properties.bytes) > 3e6);
});

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
