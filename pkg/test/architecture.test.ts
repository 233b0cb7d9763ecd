/** The modules of `pkg/src` and what each may import. A module knows only modules below it. */

import assert from "node:assert/strict";
import { readdir, readFile } from "node:fs/promises";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import {
  circles,
  ENTRIES,
  type Files,
  functionsOf,
  importsOf,
  MAX_FUNCTION_LINES,
  MAX_LINES,
  type Rooms,
  tooLong,
  unusedArrows,
  wrongArrows,
  wrongImporters,
} from "./architecture/check.ts";

/** Every module from the ground up, with the modules that it may import. */
const ROOMS: Rooms = {
  // Public types and errors.
  types: [],
  // The option table and its checks.
  options: ["types"],
  // Bytes, wherever they lie.
  source: ["types", "options"],
  // Between texts and token ids.
  text: ["types", "options"],
  // Messages between a model's owner and its engine.
  rpc: ["types", "options", "source"],
  // The builds of the engine, their instances and threads.
  wasm: ["types", "rpc"],
  // Downloads that are kept.
  cache: ["types", "source"],
  // Response formats.
  constrain: ["types", "options", "text", "rpc"],
  // What a model has counted and timed, and how metrics are written.
  metrics: ["types"],
  // What only a model that is watched needs.
  signals: ["types", "source", "metrics"],
  // What only models that are larger than one memory need.
  split: ["types", "wasm"],
  // What runs inside the worker.
  host: ["types", "options", "source", "text", "rpc", "wasm", "cache", "constrain", "metrics", "signals", "split"],
  // The public objects. They reach the engine by messages, never through the host.
  api: ["types", "options", "source", "rpc", "cache"],
  // The runtimes: what the host and the public objects need of each.
  platform: ["types", "options", "source", "text", "rpc", "cache", "constrain", "signals", "split", "host"],
  // Requests and responses of OpenAI's interface and its neighbours: pure, for server, batches and clients.
  openai: ["types", "options"],
  // What packages for frameworks are made of, over the public objects.
  integration: ["types", "options", "source", "text"],
  // The browsers' interface to a language model, over the public objects.
  prompt_api: ["types", "options", "integration"],
  // The server: a function from requests to responses, over the public objects.
  server: ["types", "options", "openai", "metrics", "integration"],
  // Files of requests: rows in, answers in their order, and a journal that survives every end; also as the server's batches.
  batch: ["types", "openai", "server"],
  // What a model wrote, as elements of a page: for every page, over nothing.
  markdown: [],
  // The element of a chat for any page, over the public objects.
  chat_element: ["types", "integration", "markdown"],
  // Tools beside the engine. They use the public objects, or the unstable entry.
  doctor: ["types", "options", "source", "wasm", "api"],
  bench: ["types", "options", "api", "platform"],
  advise: ["types", "options", "api", "bench", "source"],
  // The public models, and whether each fits; a page loads it when somebody looks for a model.
  catalogue: ["types", "bench"],
  convert: ["types", "source", "text", "wasm", "host"],
  // What makes a model smaller, and what that costs.
  quality: ["types", "options", "source", "text", "metrics", "host", "api", "bench", "convert"],
  // Entry files put a platform, the public objects and the tools together.
  [ENTRIES]: [
    ...["types", "options", "source", "metrics", "host", "api", "platform", "integration", "prompt_api"],
    "chat_element",
    ...["doctor", "advise", "server", "batch", "quality"],
  ],
  cli: [
    ...["types", "options", "source", "metrics", "host", "platform", "openai", "server", "batch", "bench", "convert"],
    ...["quality", "catalogue"],
    ENTRIES,
  ],
};

/** Files that use one runtime's own storage. */
const STORAGE = /^(cache\/(disk|opfs\w*)|source\/file)\.ts$/;

async function read(): Promise<Files> {
  const root = fileURLToPath(new URL("../src/", import.meta.url));
  const names = (await readdir(root, { recursive: true })).filter((name) => name.endsWith(".ts")).sort();
  const entries = names.map(
    async (name) => [name.split(path.sep).join("/"), await readFile(path.join(root, name), "utf8")] as const,
  );
  return new Map(await Promise.all(entries));
}

const files = await read();

test("modules import only what the list allows, and the list allows nothing that is not needed", () => {
  assert.deepEqual(wrongArrows(files, ROOMS), []);
  assert.deepEqual(unusedArrows(files, ROOMS), []);
});

test("no files import each other in a circle", () => assert.deepEqual(circles(files), []));

test("only the platform imports what uses one runtime's storage", () => {
  assert.deepEqual(wrongImporters(files, STORAGE, "platform"), []);
  assert.equal([...files.keys()].filter((file) => STORAGE.test(file)).length, 4, "these files exist");
});

test("files and functions are short, or say why they are not", () => assert.deepEqual(tooLong(files), []));

test("every import of every kind and shape is seen", () => {
  const text = `
    import { a } from "../types/a.ts";
    import type { B } from './b.ts';
    import {
      type C,
      d,
    } from "../types/c.ts";
    import "./e.ts";
    export * from "../rpc/f.ts";
    export type { G } from "../rpc/g.ts";
    const h = () => import("./h.ts");
    type I = import("../rpc/i.ts").I;
    // import { j } from "./j.ts";
    /* import { k } from "./k.ts"; */
    import path from "node:path";
    import glue from "../../dist/glue/l.js";
    const address = "https://example.com/"; import { m } from "./m.ts";
  `;
  assert.deepEqual(importsOf("host/x.ts", text).sort(), [
    "host/b.ts",
    "host/e.ts",
    "host/h.ts",
    "host/m.ts",
    "rpc/f.ts",
    "rpc/g.ts",
    "rpc/i.ts",
    "types/a.ts",
    "types/c.ts",
  ]);
});

const rooms: Rooms = { ground: [], middle: ["ground"], top: ["ground"] };
const made = (files: Record<string, string>): Files => new Map(Object.entries(files));

test("an arrow that is not in the list fails, type imports included", () => {
  const fine = made({ "middle/a.ts": 'import "../ground/b.ts";', "ground/b.ts": "" });
  assert.deepEqual(wrongArrows(fine, rooms), []);
  const wrong = made({
    "ground/a.ts": 'import type { B } from "../middle/b.ts";',
    "top/c.ts": 'export * from "../middle/b.ts";',
    "attic/d.ts": "",
    "entry.ts": "",
  });
  assert.deepEqual(wrongArrows(wrong, rooms), [
    "ground/a.ts imports middle/b.ts: ground may not import middle",
    "top/c.ts imports middle/b.ts: top may not import middle",
    "attic/d.ts: attic is not in the list of modules",
    "entry.ts: entries is not in the list of modules",
  ]);
  assert.deepEqual(wrongArrows(made({}), { low: ["high"], high: [] }), [
    "the list lets low import high, which does not lie below it",
  ]);
  assert.deepEqual(unusedArrows(fine, rooms), ["top does not import ground"]);
});

test("a circle of files fails, of two and of more", () => {
  const two = made({ "a.ts": 'import type { B } from "./b.ts";', "b.ts": 'import { a } from "./a.ts";' });
  assert.deepEqual(circles(two), ["a.ts → b.ts → a.ts"]);
  const three = made({
    "start.ts": 'import "./x/a.ts";',
    "x/a.ts": 'import "../y/b.ts";',
    "y/b.ts": 'export * from "./c.ts";',
    "y/c.ts": 'type A = import("../x/a.ts").A;',
  });
  assert.deepEqual(circles(three), ["x/a.ts → y/b.ts → y/c.ts → x/a.ts"]);
  const diamond = made({
    "a.ts": 'import "./b.ts"; import "./c.ts";',
    "b.ts": 'import "./d.ts";',
    "c.ts": 'import "./d.ts";',
    "d.ts": "",
  });
  assert.deepEqual(circles(diamond), []);
});

test("another importer of storage fails", () => {
  const importing = 'import { FileSource } from "../source/file.ts";';
  const same = 'import { folderOf } from "./opfs.ts";';
  const found = wrongImporters(
    made({ "host/a.ts": importing, "platform/b.ts": importing, "cache/opfs_write.ts": same, "source/files.ts": "" }),
    STORAGE,
    "platform",
  );
  assert.deepEqual(found, ["host/a.ts imports source/file.ts, which is for platform alone"]);
});

test("a file or a function that is too long fails, unless its first comment says why", () => {
  const body = (count: number, indent = "  ") => `${indent}work();\n`.repeat(count);
  const long = body(MAX_FUNCTION_LINES);
  const heads = [
    "function a() {",
    "export async function* b<T>(\n  one: T,\n  other: { two: number },\n): AsyncIterable<T> {",
    "const c = async (x: number) => {",
    "test(() => {",
  ];
  for (const head of heads) {
    const close = head.startsWith("test") ? "});" : "}";
    const one = `${head}\n${long}${close}\n`;
    assert.equal(tooLong(made({ "x/a.ts": one })).length, 1, head);
    assert.deepEqual(tooLong(made({ "x/a.ts": `${head}\n${body(30)}${close}\n` })), [], head);
    assert.deepEqual(tooLong(made({ "x/a.ts": `/** Long because it is a table. */\n${one}` })), [], head);
  }
  for (const head of ["  async #d(): Promise<void> {", "  static e({ x }: X): Y {", "  [Symbol.iterator]() {"]) {
    const one = `class A {\n${head}\n${body(MAX_FUNCTION_LINES, "    ")}  }\n}\n`;
    assert.deepEqual(tooLong(made({ "x/a.ts": one })), [`x/a.ts:2: a function of ${MAX_FUNCTION_LINES + 2} lines`]);
  }
  for (const head of ["class A {", "const a = {", "if (x(y)) {", "for (const a of b) {", "export interface A {"]) {
    assert.deepEqual(functionsOf(`${head}\n${long}}\n`), [], head);
  }
  const lines = "const a = 1;\n".repeat(MAX_LINES);
  assert.deepEqual(tooLong(made({ "x/a.ts": lines })), []);
  assert.deepEqual(tooLong(made({ "x/a.ts": `${lines}a;\n` })), [`x/a.ts: ${MAX_LINES + 1} lines`]);
  assert.deepEqual(tooLong(made({ "x/a.ts": `/** Data. Long because it is a table. */\n${lines}` })), []);
});
