/** One glue for builds with threads and without: where it may be shared, and what has to stop that. */
import assert from "node:assert/strict";
import { readdir, readFile } from "node:fs/promises";
import { test } from "node:test";
import { serves, sharedGlue } from "../../scripts/glue.mjs";

const dist = new URL("../../dist/", import.meta.url);
const [threads, single, constrain] = await Promise.all(
  ["threads-relaxed", "single-relaxed", "constrain"].map(async (name) =>
    (await readFile(new URL(`glue/${name}.js`, dist), "utf8")).replace(/^\/\/.*$/gm, ""),
  ),
);

test("a bundle holds the glue once", async () => {
  assert.ok(serves(threads, single));
  for (const name of ["worker.js", "node-worker.js", "node-thread.js", "edge.js"]) {
    const script = await readFile(new URL(name, dist), "utf8");
    assert.equal(script.match(/\.adapterloader_new\(/g)?.length, 1, name);
  }
});

test("bundles are ASCII, which engines read as it is", async () => {
  const names = (await readdir(dist)).filter((name) => name.endsWith(".js"));
  assert.ok(names.length > 20);
  for (const name of names) {
    const script = await readFile(new URL(name, dist), "latin1");
    assert.doesNotMatch(script, /[^\0-\x7f]/, name);
  }
});

test("shared, it makes no memory: a build without threads runs where no memory can be shared", () => {
  assert.ok(threads.includes("new WebAssembly.Memory("));
  assert.ok(!sharedGlue(threads).includes("new WebAssembly.Memory("));
  assert.throws(() => sharedGlue(single), /makes no memory/);
});

test("glue that does anything else is not shared", () => {
  const body = /function takeFromExternrefTable0\(idx\) \{\n/;
  const imported = /\n( {4}__wb\w+: function\(\w*\) \{\n)/;
  for (const changed of [
    single.replace(body, "$&  idx++;\n"),
    single.replace(imported, "\n$1      debugger;\n"),
    single.replace(imported, "\n    __wbg_other_0123456789abcdef: function() {\n    },$&"),
    `${single}function other() {\n}\n`,
    constrain,
  ]) {
    assert.notEqual(changed, single);
    assert.equal(serves(threads, changed), false);
  }
});
