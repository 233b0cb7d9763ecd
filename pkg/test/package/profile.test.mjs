import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { flavours, root } from "../../scripts/cargo.mjs";
import { buildFlavour } from "../../scripts/flavour.mjs";

/** It takes what `make build` has compiled, and optimises it once more. */
test("the build for profilers has the published code, and the names of its functions", async () => {
  const folder = path.join(root, "target", "profile", "dist");
  mkdirSync(path.join(folder, "glue"), { recursive: true });
  const flavour = flavours.find(({ name }) => name === "single-relaxed");
  await buildFlavour(flavour, folder, { names: true });
  const module = (dist) => new WebAssembly.Module(readFileSync(path.join(dist, flavour.file)));
  const [named, published] = [folder, path.join(root, "pkg", "dist")].map(module);
  const names = (one) =>
    WebAssembly.Module.customSections(one, "name").map((bytes) => new TextDecoder("latin1").decode(bytes));
  assert.deepEqual(names(published), []);
  const [text] = names(named);
  // A crate's name carries a hash of its version.
  for (const name of [
    /\bternlight(\[\w+\])?::kernels::linear/,
    /\bternlight(\[\w+\])?::bench::streamed/,
    /Engine>?::step/,
  ]) {
    assert.match(text, name);
  }
  const code = (dist) => codeSection(readFileSync(path.join(dist, flavour.file)));
  assert.ok(code(folder).equals(code(path.join(root, "pkg", "dist"))), "nothing but the names differs");
});

/** The section of a module that holds its functions. */
function codeSection(bytes) {
  let at = 8;
  const number = () => {
    for (let [value, shift] = [0, 0]; ; shift += 7) {
      const byte = bytes[at++];
      value |= (byte & 0x7f) << shift;
      if (byte < 0x80) return value >>> 0;
    }
  };
  while (at < bytes.length) {
    const id = bytes[at++];
    const size = number();
    if (id === 10) return bytes.subarray(at, at + size);
    at += size;
  }
  throw new Error("the module has no code");
}
