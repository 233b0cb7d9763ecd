/** The packages for frameworks in clients/, packed and installed beside this one: their types, their entries, and a page that Vite builds and serves. */
import assert from "node:assert/strict";
import { cp, mkdir, readdir, writeFile } from "node:fs/promises";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { demoModel, emptyFolderWithPackage, host, open, run, startServer } from "./support.mjs";

const root = fileURLToPath(new URL("../../../", import.meta.url));
const packages = ["ai-sdk", "langchain", "react"];
const tsc = path.join(root, "node_modules/.bin/tsc");

/** A folder with this package, and each of those from its tarball, with what these want beside them. */
async function installed(beside) {
  const folder = await emptyFolderWithPackage();
  for (const client of packages) {
    const { stdout } = await run("npm", ["pack", "--json", "--pack-destination", folder], {
      cwd: path.join(root, "clients", client),
    });
    const [{ filename, name, files }] = Object.values(JSON.parse(stdout));
    const paths = files.map(({ path }) => path);
    for (const wanted of ["LICENSE-MIT", "README.md", "dist/index.js", "dist/types/index.d.ts"]) {
      assert.ok(paths.includes(wanted), `${name} has no ${wanted}`);
    }
    assert.ok(!paths.some((path) => /^(src|test)\//.test(path)), `${name} has its sources`);
    const to = path.join(folder, "node_modules", name);
    await mkdir(to, { recursive: true });
    await run("tar", ["-xzf", path.join(folder, filename), "-C", to, "--strip-components=1"]);
  }
  for (const [from, names] of Object.entries(beside)) {
    for (const name of names) {
      await cp(path.join(root, from, name), path.join(folder, "node_modules", name), {
        recursive: true,
        dereference: true,
      });
    }
  }
  return folder;
}

test("the packages have types and entries that tools find right", async () => {
  const folder = await installed({
    node_modules: ["@ai-sdk", "ai", "@types/react", "csstype", "@langchain/core"],
  });
  for (const tarball of (await readdir(folder)).filter((name) => /^ternlight-[a-z]/.test(name))) {
    const args = [tarball, "--profile", "esm-only"];
    await run(host(".bin/attw"), args, { cwd: folder }).catch(({ stdout, stderr }) =>
      assert.fail(`${tarball}: ${stdout}${stderr}`),
    );
  }
  for (const client of packages) {
    const place = path.join(folder, "node_modules/@ternlight", client);
    await run(host(".bin/publint"), ["--strict", place]).catch(({ stdout, stderr }) =>
      assert.fail(`${client}: ${stdout}${stderr}`),
    );
  }
  const program = `
    import { createTernlight, ternlight, TernlightChatTransport } from "@ternlight/ai-sdk";
    import { ChatTernlight, TernlightEmbeddings, TernlightLLM } from "@ternlight/langchain";
    import { useChatSession, useGeneration, useTernlight, type UseTernlight } from "@ternlight/react";
    import { type ChatTransport, generateText, type LanguageModel, type UIMessage } from "ai";
    import type { Model } from "ternlight";
    import { type LanguageModelStatic, languageModel } from "ternlight/prompt-api";
    export const model: LanguageModel = ternlight("hf:owner/repo", { threads: 1 });
    export const text = async (): Promise<string> => (await generateText({ model, prompt: "Hi" })).text;
    export const transport: ChatTransport<UIMessage> = new TernlightChatTransport({ model: ternlight("hf:owner/repo") });
    export const provider = createTernlight({ loadOptions: { threads: 1 } });
    export const found = (): UseTernlight => useTernlight(null);
    export const said = (model: Model | null): string => useGeneration(model).text + useChatSession(model).messages.length;
    export const chat = new ChatTernlight({ model: "hf:owner/repo", temperature: 0, minP: 0.1, metadata: {} });
    export const others = [new TernlightLLM({ model: "a.gguf" }), new TernlightEmbeddings({ model: "a.gguf", pooling: "last" })];
    export const prompts: LanguageModelStatic = languageModel("a.gguf");
    // @ts-expect-error
    ternlight(42);
    // @ts-expect-error
    new ChatTernlight({ model: "a.gguf", temprature: 0 });
    // @ts-expect-error
    useTernlight("a.gguf", { thread: 1 });
  `;
  await writeFile(path.join(folder, "program.ts"), program);
  for (const resolution of ["nodenext", "bundler"]) {
    const module = ["--module", resolution === "bundler" ? "esnext" : resolution, "--moduleResolution", resolution];
    const lib = [
      "--target",
      "es2022",
      "--lib",
      "es2023,esnext.disposable,dom,dom.iterable,dom.asynciterable",
      "--types",
      "",
    ];
    const options = ["--noEmit", "--strict", "--skipLibCheck", ...lib, ...module];
    await run(tsc, [...options, "program.ts"], { cwd: folder }).catch(({ stdout }) => assert.fail(stdout));
  }
});

test("a page of Vite uses them without a word of configuration", async (context) => {
  const folder = await installed({ "pkg/test/hosts/node_modules": ["react", "react-dom", "scheduler"] });
  const page = `
    import { useGeneration, useTernlight } from "@ternlight/react";
    import { createElement, useEffect } from "react";
    import { createRoot } from "react-dom/client";
    import { languageModel } from "ternlight/prompt-api";

    const { prototype } = languageModel("./model/");
    function Page() {
      const { status, model, error } = useTernlight("./model/", { threads: 1 });
      const { generate, finished } = useGeneration(model);
      useEffect(() => {
        if (model) generate("Once upon a time", { temperature: 0, maxTokens: 12 });
      }, [model]);
      return createElement("output", null, status === "error" ? String(error) : finished && finished.text + typeof prototype.prompt);
    }
    createRoot(document.querySelector("div")).render(createElement(Page));
  `;
  await writeFile(path.join(folder, "main.js"), page);
  await writeFile(
    path.join(folder, "index.html"),
    '<!doctype html><div></div><script type="module" src="./main.js"></script>',
  );
  await cp(demoModel, path.join(folder, "public", "model"), { recursive: true });
  const vite = host("vite8/bin/vite.js");
  await run(process.execPath, [vite, "build"], { cwd: folder });
  for (const command of ["preview", "dev"]) {
    await context.test(command, async (context) => {
      const url = await startServer(context, process.execPath, [vite, command, "--host", "127.0.0.1"], { cwd: folder });
      const { printed } = await open(context, url);
      assert.equal(printed, " there lived a man who had a wife and a wife.function");
    });
  }
});
