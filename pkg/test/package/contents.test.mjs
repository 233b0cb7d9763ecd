import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { readdir, readFile, stat, writeFile } from "node:fs/promises";
import { homedir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import flavours from "../../flavours.json" with { type: "json" };
import { emptyFolderWithPackage, host, run } from "./support.mjs";

/** What a page loads: the entry, the worker and one build of the engine. With a chat template, what renders it too. */
const BUDGET = 400_000;
const CHAT_BUDGET = 420_000;
/** The packed file: four builds, the converter and the demo model, which is half of it. */
const TARBALL = 6_300_000;

test("the tarball", async (context) => {
  const folder = await emptyFolderWithPackage();
  const installed = path.join(folder, "node_modules", "ternlight");
  const dist = path.join(installed, "dist");
  const tarball = path.join(
    folder,
    (await readdir(folder)).find((name) => name.endsWith(".tgz")),
  );
  const text = (name) => readFile(path.join(dist, name), "utf8");

  await context.test("holds what is needed and nothing of the kitchen", async () => {
    const scripts = [
      "batch.js",
      "bench.js",
      "bundler.jsx",
      "catalogue.js",
      "chat-element.js",
      "chat-element.jsx",
      "chat.js",
      "cli.js",
      "constrain.wasm",
      "convert.wasm",
      "demo.js",
      "demo.jsx",
      "doctor.js",
      "doctor.jsx",
      "edge.js",
      "formats.js",
      "gguf.js",
      "hub.js",
      "index.js",
      "integration.js",
      "isolate.js",
      "maps.js",
      "markdown.js",
      "node-doctor.js",
      "node-quality.js",
      "node-thread.js",
      "node-worker.js",
      "node.js",
      "prompt-api.js",
      "quality.js",
      "quality.jsx",
      "server.js",
      "signals.js",
      "split.js",
      "worker.js",
    ];
    const expected = [...scripts, ...flavours.map((row) => row.file), "types"];
    assert.deepEqual((await readdir(dist)).sort(), expected.sort());
    assert.ok(!(await readdir(installed)).includes("src"));
  });

  await context.test("has every file that its documents lead to", async () => {
    const documents = (await readdir(installed, { recursive: true })).filter(
      (name) => name.endsWith(".md") && !name.startsWith("models"),
    );
    assert.ok(documents.includes("README.md") && documents.length > 15, documents.join());
    const absent = [];
    for (const document of documents) {
      const text = (await readFile(path.join(installed, document), "utf8")).replace(/^```[\s\S]*?^```$/gm, "");
      for (const [, target] of text.matchAll(/\]\(([^)\s#]+)[^)]*\)/g)) {
        if (/^(https?|mailto):/.test(target)) continue;
        const file = path.join(installed, path.dirname(document), decodeURIComponent(target));
        if (!existsSync(file)) absent.push(`${document}: ${target}`);
      }
    }
    assert.deepEqual(absent, []);
  });

  await context.test("has one worker file that bundlers need not follow anywhere", async () => {
    const told = ["@vite-ignore", "webpackIgnore: true", "turbopackIgnore: true"].map((comment) => `/* ${comment} */`);
    for (const [worker, imports] of [
      ["worker.js", 1],
      ["formats.js", 0],
      ["gguf.js", 0],
      ["maps.js", 0],
      ["signals.js", 0],
      ["split.js", 0],
      ["node-worker.js", 0],
      ["node-thread.js", 0],
      ["chat.js", 0],
    ]) {
      const script = await text(worker);
      const found = script.match(/\bimport\s*\([\s\S]*?[\w$]\)/g) ?? [];
      assert.equal(found.length, imports, `${worker}: ${found}`);
      for (const one of found) for (const comment of told) assert.ok(one.includes(comment), `${one} lacks ${comment}`);
      assert.ok(!/\bnew Worker\(new URL\("/.test(script), `${worker} names itself or another worker`);
    }
    for (const name of ["worker.js", "chat.js", "formats.js", "gguf.js", "maps.js", "signals.js", "split.js"]) {
      assert.ok(!/\bfrom\s*"|^import\b/m.test(await text(name)), `${name} imports another file`);
    }
    for (const name of ["chat.js", "formats.js", "gguf.js", "maps.js", "signals.js", "split.js"])
      assert.ok((await text("worker.js")).includes(`new URL("./${name}",import.meta.url)`), name);
    const spawn = 'new Worker(new URL("./worker.js",import.meta.url),{type:"module"})';
    assert.ok((await text("index.js")).includes(spawn), "index.js lacks what bundlers look for");
  });

  await context.test("names no place of the machine that built it", async () => {
    const root = fileURLToPath(new URL("../../../", import.meta.url));
    for (const entry of await readdir(dist, { recursive: true, withFileTypes: true })) {
      if (!entry.isFile()) continue;
      const bytes = await readFile(path.join(entry.parentPath, entry.name), "latin1");
      for (const place of [root, homedir()]) assert.ok(!bytes.includes(place), `${entry.name} contains ${place}`);
    }
  });

  await context.test("has types that a strict project accepts", async () => {
    const program = `
      import * as api from "ternlight";
      import { EngineError, load, type LoadOptions, type Model } from "ternlight";
      import { type Advice, doctor } from "ternlight/doctor";
      export const advice = async (): Promise<Advice[]> => (await doctor("https://example.com/model.gguf")).advice;
      export const options: LoadOptions = { threads: 2, flavour: "relaxed" };
      export const code = (error: unknown): string | null => (error instanceof EngineError ? error.code : null);
      export const close = (model: Model): Promise<void> => model.close();
      const call = { type: "function", function: { name: "weather", arguments: {} } };
      const asked: api.ChatMessage[] = [{ role: "assistant", content: null, tool_calls: [call] }];
      export const chat = (model: Model) => model.chat(asked, { signal: undefined });
      export const typed = (model: Model, ids: Uint32Array | Int32Array) =>
        [model.generate(ids), model.embed([ids]), model.logits(ids), model.detokenize(ids)];

      // Codes are a union: a switch over them is checked.
      export const retried = (code: api.ErrorCode): boolean => code === "Network" || code === "QueueFull";
      // @ts-expect-error
      export const misspelt = (code: api.ErrorCode) => code === "NetworkError";
      export const city = ({ arguments: given }: api.ToolCall): unknown => given.city;
      export const restored = (model: Model, bytes: ArrayBuffer, read: Uint8Array): Promise<api.Session>[] =>
        [model.restoreSession(bytes), model.restoreSession(read, { adapters: [{ name: "a" }] })];
      export const opened = (model: Model): api.Session => model.session({ adapters: [{ name: "a" }] });
      // @ts-expect-error
      export const notSo = (model: Model, restore: Uint8Array) => model.session({ restore });
      const schema = { type: "object", properties: { age: { type: "integer" } } };
      export const formatted = (model: Model) => model.generate("", { responseFormat: api.jsonSchema(schema) });
      export const ended = ({ finishReason, stopText = "" }: api.Finished): string => {
        switch (finishReason) {
          case "stop": return stopText;
          case "length": case "stopped": return finishReason;
          default: return finishReason satisfies never;
        }
      };
      const said = [{ role: "user", content: [{ type: "text", text: "Hi" }] }];
      export const awaited = async (model: Model): Promise<string> => {
        const answer = await model.chat(said);
        for await (const piece of answer) return piece.text;
        return answer.text();
      };
      export const mistaken = async (model: Model): Promise<string> => {
        // @ts-expect-error
        const text: string = (await model.chat(said)).text;
        // @ts-expect-error
        const again: string = await model.chat(said);
        return text + again;
      };
      export const bytes = (read: Uint8Array, all: ArrayBuffer) => [load(read), load(all), load({ "a.gguf": all }), load([read])];

      type Unset<T> = { [K in keyof T]-?: undefined };
      export const unset = (
        all: Unset<api.LoadOptions & api.InspectOptions & api.AdapterOptions & api.CacheOptions & api.SessionOptions>,
        each: Unset<api.ChatOptions & api.CompletionOptions & api.TokenizeOptions & api.DetokenizeOptions>,
        other: Unset<api.LogitsOptions & api.EmbedOptions & api.PerplexityOptions & Pick<api.AdapterUse, "scale">>,
      ): [
        api.LoadOptions, api.InspectOptions, api.AdapterOptions, api.CacheOptions, api.SessionOptions,
        api.ChatOptions, api.CompletionOptions, api.TokenizeOptions, api.DetokenizeOptions,
        api.LogitsOptions, api.EmbedOptions, api.PerplexityOptions, api.AdapterUse,
      ] => [all, all, all, all, all, each, each, each, each, other, other, other, { name: "a", ...other }];

      // @ts-expect-error
      load(42);
      // @ts-expect-error
      load({ a: 5 });
      // @ts-expect-error
      load([new Date()]);
    `;
    const onEdge = `
      import type { Model } from "ternlight";
      import * as edge from "ternlight/edge";
      import constrain from "ternlight/constrain.wasm";
      import wasm from "ternlight/single-relaxed.wasm";
      export const load = (wasm: WebAssembly.Module): Promise<Model> => edge.load("https://example.com/", { wasm });
      export const imported = edge.load("https://example.com/", { wasm, constrain });
      // @ts-expect-error
      export const text: string = wasm;
    `;
    const known = `
      import { load, type Model } from "ternlight";
      import { type Checkup, check } from "ternlight/quality";
      export const checkup = (): Promise<Checkup> => check("https://example.com/model.gguf");
      export const blobs = (blob: Blob, url: URL, request: Request) => [load(blob), load([blob]), load(url), load(request)];
      export const response = (model: Model): Response => new Response(model.generate("Once").textStream());
      export const stoppable = (model: Model, signal: AbortSignal) => model.generate("Once", { signal });
      // @ts-expect-error
      export const unstoppable = (model: Model) => model.generate("Once", { signal: 5 });
      export const pieces = async (model: Model): Promise<string> => {
        const { value } = await model.generate("Once").toReadableStream().getReader().read();
        return value!.text;
      };
    `;
    const bare = `
      import demo from "ternlight/demo";
      import { type EdgeLoadOptions, inspect } from "ternlight/edge";
      export const options: Omit<EdgeLoadOptions, "wasm"> = { contextLength: 64 };
      export const files: string[] = Object.keys(demo);
      export { inspect };
    `;
    const disposed = `
      import { load } from "ternlight";
      export async function once(): Promise<string> {
        await using model = await load("https://example.com/");
        await using session = model.session();
        return session.generate("Once").text();
      }
    `;
    const picked = `
      import { load } from "ternlight";
      export const file = (handle: FileSystemFileHandle) => [load(handle), load([handle]), load({ "a.gguf": handle })];
      export const folder = (handle: FileSystemDirectoryHandle) => load(handle);
      export const list = (input: HTMLInputElement) => load(input.files!);
      import "ternlight/chat-element";
      const chat = document.querySelector("ternlight-chat")!;
      chat.addEventListener("ready", ({ detail }) => detail.model.info.threads.toFixed());
      chat.addEventListener("error", ({ detail }) => console.error(detail.error));
      chat.addEventListener("click", ({ clientX }) => clientX.toFixed());
    `;
    await writeFile(path.join(folder, "program.ts"), program);
    await writeFile(path.join(folder, "on_edge.ts"), onEdge);
    await writeFile(path.join(folder, "picked.ts"), picked);
    await writeFile(path.join(folder, "known.ts"), known);
    await writeFile(path.join(folder, "bare.ts"), bare);
    await writeFile(path.join(folder, "disposed.ts"), disposed);
    const tsc = fileURLToPath(new URL("../../../node_modules/.bin/tsc", import.meta.url));
    const strict = ["--noEmit", "--strict", "--exactOptionalPropertyTypes", "--target", "es2022"];
    const types = fileURLToPath(new URL("../../../node_modules/@types", import.meta.url));
    const projects = {
      "a page": [
        ["--types", "", "--lib", "es2022,dom,dom.iterable"],
        ...["program.ts", "on_edge.ts", "picked.ts", "known.ts"],
      ],
      "a page of tomorrow": [
        ["--types", "", "--lib", "es2022,esnext.disposable,dom,dom.iterable,dom.asynciterable"],
        ...["program.ts", "known.ts", "disposed.ts"],
      ],
      "Node, without the DOM's types": [
        ["--typeRoots", types, "--types", "node", "--lib", "es2022"],
        ...["program.ts", "known.ts", "disposed.ts"],
      ],
      "the language alone": [["--types", "", "--lib", "es2022"], "program.ts", "bare.ts"],
    };
    for (const [name, [environment, ...files]] of Object.entries(projects)) {
      for (const resolution of ["nodenext", "bundler"]) {
        const module = ["--module", resolution === "bundler" ? "esnext" : resolution, "--moduleResolution", resolution];
        // Skipped or not: a name that is not found is `any` to those who skip.
        for (const skip of ["true", "false"]) {
          const options = [...strict, ...environment, ...module, "--skipLibCheck", skip];
          await run(tsc, [...options, ...files], { cwd: folder }).catch(({ stdout }) =>
            assert.fail(`${name}: ${stdout}`),
          );
        }
      }
    }
  });

  await context.test("has types and entries that publint and Are The Types Wrong find right", async (context) => {
    const checks = [
      [host(".bin/publint"), ["--strict", installed]],
      // The package is ESM only, and its types are for resolution as it is since Node 16.
      [host(".bin/attw"), [tarball, "--profile", "esm-only"]],
    ];
    for (const [program, args] of checks) {
      await context.test(path.basename(program), () =>
        run(program, args).catch((error) => assert.fail(`${error.stdout}${error.stderr}`)),
      );
    }
  });

  await context.test("is no larger than it has to be", async (context) => {
    const { size } = await stat(tarball);
    context.diagnostic(`${(size / 1e6).toFixed(2)} MB packed`);
    assert.ok(size < TARBALL, `${size} bytes are over the limit of ${TARBALL}`);
  });

  await context.test("costs a page little", async (context) => {
    const size = async (name) => gzipSync(await readFile(path.join(dist, name)), { level: 9 }).length;
    const scripts = (await size("index.js")) + (await size("worker.js")) + (await size("gguf.js"));
    const chat = await size("chat.js");
    const kB = (bytes) => `${(bytes / 1000).toFixed(1)} kB`;
    for (const { file } of flavours) {
      const total = scripts + (await size(file));
      const share = `${kB(scripts)} of them scripts; to chat, ${kB(chat)} more`;
      context.diagnostic(`${file} and its scripts: ${kB(total)} gzipped (${share})`);
      assert.ok(total < BUDGET, `${total} bytes are over the budget of ${BUDGET}`);
      assert.ok(total + chat < CHAT_BUDGET, `${total + chat} bytes are over the budget of ${CHAT_BUDGET}`);
    }
  });
});
