/** Metrics as text: the formats, their escapes, and what a scraper prefers. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Recorder } from "../../src/metrics/recorder.ts";
import { repetitionScore } from "../../src/metrics/repetition.ts";
import { coarser, type Family, formatFor, write } from "../../src/metrics/text.ts";

const counter: Family = {
  type: "counter",
  name: "a_total",
  help: 'A "b"\\\nc.',
  samples: [
    [{}, 3],
    [{ name: 'x"\\\n' }, 0.5],
  ],
};

test("families are written as each format wants them", () => {
  const histogram: Family = {
    type: "histogram",
    name: "s",
    help: "S.",
    samples: [[{ m: "n" }, { bounds: [0.1, 1], counts: [1, 0, 2], sum: 7.5 }]],
  };
  const info: Family = { type: "info", name: "v_info", help: "V.", samples: [[{ version: "1" }, 1]] };
  const other: Family = { type: "counter", name: "most", help: "M.", samples: [[{}, 1]] };
  assert.equal(write([other]), "# HELP most M.\n# TYPE most counter\nmost 1\n");
  assert.equal(write([other], "openmetrics"), "# HELP most M.\n# TYPE most unknown\nmost 1\n# EOF\n");
  const none: Family = { type: "gauge", name: "none", help: "N.", samples: [] };
  const lines = [
    's_bucket{m="n",le="0.1"} 1',
    's_bucket{m="n",le="1.0"} 1',
    's_bucket{m="n",le="+Inf"} 3',
    's_sum{m="n"} 7.5',
    's_count{m="n"} 3',
  ];
  assert.deepEqual(write([counter, histogram, info, none]).split("\n"), [
    '# HELP a_total A "b"\\\\\\nc.',
    "# TYPE a_total counter",
    "a_total 3",
    'a_total{name="x\\"\\\\\\n"} 0.5',
    "# HELP s S.",
    "# TYPE s histogram",
    ...lines,
    "# HELP v_info V.",
    "# TYPE v_info gauge",
    'v_info{version="1"} 1',
    "",
  ]);
  assert.deepEqual(write([counter, histogram, info, none], "openmetrics").split("\n"), [
    '# HELP a A \\"b\\"\\\\\\nc.',
    "# TYPE a counter",
    "a_total 3",
    'a_total{name="x\\"\\\\\\n"} 0.5',
    "# HELP s S.",
    "# TYPE s histogram",
    ...lines,
    "# HELP v V.",
    "# TYPE v info",
    'v_info{version="1"} 1',
    "# EOF",
    "",
  ]);
});

test("a histogram with fewer bounds counts the same values", () => {
  const fine = { bounds: [1, 2, 3, 4], counts: [1, 2, 4, 8, 16], sum: 100 };
  assert.deepEqual(coarser(fine, [2, 4]).counts, [3, 12, 16]);
  assert.deepEqual(coarser(fine, [3]).counts, [7, 24]);
  assert.deepEqual(coarser(fine, []).counts, [31]);
});

test("a scraper gets OpenMetrics where it asks for it", () => {
  const prometheus2 =
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
  const cases: [accept: string | null, format: string][] = [
    [prometheus2, "openmetrics"],
    ["application/openmetrics-text", "openmetrics"],
    ["application/openmetrics-text;version=0.0.1", "prometheus"],
    ["text/plain;q=1,application/openmetrics-text;q=0.2", "prometheus"],
    ["application/openmetrics-text;q=0", "prometheus"],
    ["*/*", "prometheus"],
    [null, "prometheus"],
  ];
  for (const [accept, format] of cases) assert.equal(formatFor(accept), format, String(accept));
});

test("what the engine reports becomes counts and times", () => {
  const recorder = new Recorder();
  recorder.submitted(1);
  recorder.submitted(2);
  const begun = performance.now();
  const prompt = { type: "prompt", request: 1, tokens: 40, cached: 32 };
  // The prompt's last step gives a token; the second request waits.
  recorder.step(begun, Uint32Array.of(1, 32, 8), [prompt, 7 * 2 ** 32 + 1]);
  recorder.step(begun, Uint32Array.of(1, 40, 1), [8 * 2 ** 32 + 1]);
  // A step that was cut short ends no batch.
  recorder.step(begun, Uint32Array.of(), []);
  recorder.step(begun, Uint32Array.of(1, 41, 1), [9 * 2 ** 32 + 1, { type: "finished", request: 1 }]);
  recorder.over(2);
  recorder.ended("generate", "length");
  recorder.ended("generate", "length");
  recorder.ended("embed", "error", "ContextFull");
  recorder.adapted([{ name: "a" }], 1);
  const { histograms, ...rest } = recorder.statistics;
  assert.deepEqual(rest, {
    requests: [
      { call: "generate", outcome: "length", count: 2 },
      { call: "embed", outcome: "error", count: 1 },
    ],
    errors: { ContextFull: 1 },
    promptTokens: 8,
    cachedTokens: 32,
    generatedTokens: 3,
    batchedRequests: 3,
    longestTokens: 42,
    adapters: { a: 1 },
  });
  const counts = Object.entries(histograms).map(([name, { counts }]) => [name, counts.reduce((a, b) => a + b)]);
  assert.deepEqual(Object.fromEntries(counts), {
    firstToken: 1,
    gap: 2,
    perToken: 1,
    queue: 1,
    prefill: 1,
    decode: 1,
    request: 1,
    step: 3,
    stepTokens: 3,
    promptTokens: 1,
    generatedTokens: 1,
  });
  assert.equal(histograms.stepTokens.sum, 10);
  assert.equal(histograms.promptTokens.sum, 40);
});

test("a loop has a high score, and a text without repetitions none", () => {
  assert.equal(repetitionScore([]), 0);
  assert.equal(repetitionScore([1, 2]), 0);
  assert.equal(repetitionScore([1, 2, 3, 4, 5]), 0);
  // 6 runs, of which 2 are different.
  assert.equal(repetitionScore([1, 2, 1, 2, 1, 2, 1, 2]), 1 - 2 / 6);
  assert.equal(repetitionScore(Uint32Array.of(5, 5, 5, 5)), 1 - 1 / 2);
  // Ids are not run together: 1 23 and 12 3 are two things.
  assert.equal(repetitionScore([1, 23, 4, 12, 3, 4]), 0);
});
