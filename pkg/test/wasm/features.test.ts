import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const source = fileURLToPath(new URL("../../src/wasm/features.ts", import.meta.url));
const node = (version: number) =>
  fileURLToPath(new URL(`../hosts/node_modules/node${version}/bin/node`, import.meta.url));

test("a runtime that takes relaxed SIMD but computes it wrongly is found out", async () => {
  const stdin = {
    contents: `import { probe } from ${JSON.stringify(source)}; console.log(JSON.stringify(probe()));`,
    resolveDir: ".",
  };
  const { outputFiles } = await build({ stdin, bundle: true, format: "esm", write: false });
  const probe = (version: number, ...flags: string[]) =>
    JSON.parse(
      execFileSync(node(version), [...flags, "--input-type=module", "--eval", outputFiles[0]!.text], {
        encoding: "utf8",
      }),
    );

  assert.deepEqual(probe(20), { simd128: true, relaxed: "absent", unshared: null });
  assert.deepEqual(probe(20, "--experimental-wasm-relaxed-simd"), { simd128: true, relaxed: "wrong", unshared: null });
  assert.deepEqual(probe(24), { simd128: true, relaxed: "exact", unshared: null });
  // A processor's features may be switched off under an engine that knows the instruction.
  assert.equal(probe(24, "--no-enable-avx").relaxed, "exact");
});
