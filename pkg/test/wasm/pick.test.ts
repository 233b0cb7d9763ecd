import assert from "node:assert/strict";
import { test } from "node:test";
import flavours from "../../flavours.json" with { type: "json" };
import { builds } from "../../src/wasm/builds.ts";
import { type Features, whyUnshared } from "../../src/wasm/features.ts";
import { pick } from "../../src/wasm/pick.ts";

const all: Features = { simd128: true, relaxed: "exact", unshared: null };
const unshared = "the page is not cross-origin isolated";

test("the fastest build that runs correctly is taken", () => {
  for (const [features, cores, wish, expected] of [
    [all, 4, {}, { flavour: "threads-relaxed", threads: 4, threadsReason: null }],
    [{ ...all, relaxed: "wrong" }, 4, {}, { flavour: "threads-simd128", threads: 4, threadsReason: null }],
    [{ ...all, relaxed: "absent" }, 4, {}, { flavour: "threads-simd128", threads: 4, threadsReason: null }],
    [{ ...all, unshared }, 4, {}, { flavour: "single-relaxed", threads: 1, threadsReason: unshared }],
    [{ ...all, unshared }, 1, {}, { flavour: "single-relaxed", threads: 1, threadsReason: null }],
    [all, 1, {}, { flavour: "single-relaxed", threads: 1, threadsReason: null }],
    [all, 64, {}, { flavour: "threads-relaxed", threads: 8, threadsReason: "more than 8 threads gain nothing" }],
    [all, 64, { threads: 12 }, { flavour: "threads-relaxed", threads: 12, threadsReason: "threads: 12 was asked for" }],
    [all, 4, { threads: 2 }, { flavour: "threads-relaxed", threads: 2, threadsReason: "threads: 2 was asked for" }],
    [all, 4, { threads: 1 }, { flavour: "single-relaxed", threads: 1, threadsReason: "threads: 1 was asked for" }],
    [
      all,
      2,
      { threads: 16 },
      { flavour: "threads-relaxed", threads: 2, threadsReason: "threads: 16 were asked for, and there are 2 cores" },
    ],
    [all, 2, { threads: 2 }, { flavour: "threads-relaxed", threads: 2, threadsReason: null }],
    [all, 4, { flavour: "simd128" }, { flavour: "threads-simd128", threads: 4, threadsReason: null }],
    [
      all,
      4,
      { flavour: "relaxed", threads: 1 },
      { flavour: "single-relaxed", threads: 1, threadsReason: "threads: 1 was asked for" },
    ],
  ] as [Features, number, Parameters<typeof pick>[2], ReturnType<typeof pick>][]) {
    assert.deepEqual(pick(features, cores, wish), expected);
  }
});

test("cores have a thread each, and hyper-threads none unless they are asked for", () => {
  const by = (cores: number, physical: number | null, wish = {}) => {
    const { threads, threadsReason } = pick(all, cores, wish, physical);
    return [threads, threadsReason];
  };
  assert.deepEqual(by(8, 4), [4, "hyper-threads and parts of a core gain nothing"]);
  assert.deepEqual(by(2, 1), [1, "hyper-threads and parts of a core gain nothing"]);
  assert.deepEqual(by(32, 16), [8, "more than 8 threads gain nothing"]);
  assert.deepEqual(by(4, 4), [4, null]);
  assert.deepEqual(by(4, null), [4, null]);
  assert.deepEqual(by(2, 4), [2, null], "an affinity that the count of cores knows more of");
  assert.deepEqual(by(8, 4, { threads: 8 }), [8, null]);
  assert.deepEqual(by(8, 4, { threads: 2 }), [2, "threads: 2 was asked for"]);
  assert.deepEqual(pick({ ...all, unshared }, 8, {}, 4).threadsReason, unshared);
});

test("a wish that cannot be fulfilled is refused by name", () => {
  for (const [features, wish, code, message] of [
    [{ ...all, simd128: false }, {}, "UnsupportedRuntime", /no SIMD/],
    [
      { ...all, relaxed: "wrong" },
      { flavour: "relaxed" },
      "UnsupportedOption",
      /flavour "relaxed".*computes relaxed SIMD wrongly/,
    ],
    [
      { ...all, relaxed: "absent" },
      { flavour: "relaxed" },
      "UnsupportedOption",
      /flavour "relaxed".*has no relaxed SIMD/,
    ],
    [{ ...all, unshared }, { threads: 2 }, "UnsupportedOption", /threads: 2 .*not cross-origin isolated/],
  ] as [Features, Parameters<typeof pick>[2], string, RegExp][]) {
    assert.throws(() => pick(features, 4, wish), { name: "EngineError", code, message });
  }
});

test("every row of the table has its build, and the file it is looked for under", () => {
  assert.deepEqual(
    Object.keys(builds),
    flavours.map((row) => row.name),
  );
  for (const row of flavours) assert.ok(builds[row.name]?.url().pathname.endsWith(`/${row.file}`), row.name);
});

test("why memory is not shared is told in words", () => {
  const shared = { SharedArrayBuffer };
  assert.equal(whyUnshared(shared), null);
  assert.equal(whyUnshared({ ...shared, crossOriginIsolated: true }), null);
  assert.match(whyUnshared({ ...shared, crossOriginIsolated: false }) ?? "", /Cross-Origin-Opener-Policy/);
  assert.match(whyUnshared({}) ?? "", /no SharedArrayBuffer/);
});
