import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import path from "node:path";
import { test } from "node:test";
import {
  emptyFolderWithPage,
  expectAnswer,
  host,
  isolation,
  open,
  page,
  recipe,
  run,
  serveFolder,
  startServer,
} from "./support.mjs";

const node = process.execPath;
const flavours = [
  ["isolated", isolation, "threads-relaxed"],
  ["not isolated", {}, "single-relaxed"],
];

for (const vite of ["vite5", "vite6", "vite7", "vite8"]) {
  test(vite, async (context) => {
    const bin = host(`${vite}/bin/vite.js`);
    const folder = await emptyFolderWithPage();
    await run(node, [bin, "build"], { cwd: folder });

    for (const [name, headers, flavour] of flavours) {
      // Headers are all that a user has to configure.
      const config =
        headers === isolation ? await recipe("docs/guide/threads.md", "preview: {") : "export default {};\n";
      for (const command of ["preview", "dev"]) {
        await context.test(`${command}, ${name}`, async (context) => {
          await writeFile(path.join(folder, "vite.config.js"), config);
          const url = await startServer(context, node, [bin, command, "--host", "127.0.0.1"], { cwd: folder });
          const { printed } = await open(context, url);
          await expectAnswer(printed, { flavour });
        });
      }
    }
  });
}

for (const vite of ["vite5", "vite8"]) {
  test(`the chat element, by ${vite}`, async (context) => {
    const folder = await emptyFolderWithPage();
    const script = `
      import "ternlight/chat-element";
      const chat = document.createElement("ternlight-chat");
      const show = (text) => document.querySelector("output").append(text);
      chat.addEventListener("ready", async () => show((await chat.send("Once upon a time")).text));
      chat.addEventListener("error", ({ detail }) => show(String(detail.error)));
      chat.chatOptions = { temperature: 0, maxTokens: 12 };
      chat.src = "demo";
      document.body.append(chat);`;
    await writeFile(path.join(folder, "main.js"), script);
    const bin = host(`${vite}/bin/vite.js`);
    await run(node, [bin, "build"], { cwd: folder });
    for (const command of ["preview", "dev"]) {
      const url = await startServer(context, node, [bin, command, "--host", "127.0.0.1"], { cwd: folder });
      const { printed } = await open(context, url);
      assert.equal(printed, " there lived a man who had a wife and a wife.");
    }
  });
}

test("webpack", async (context) => {
  const folder = await emptyFolderWithPage();
  const config = {
    mode: "production",
    context: folder,
    entry: "./main.js",
    output: { path: path.join(folder, "dist") },
  };
  const script = `
    import webpack from ${JSON.stringify(host("webpack/lib/index.js"))};
    webpack(${JSON.stringify(config)}, (error, stats) => {
      if (error || stats.hasErrors()) throw error ?? new Error(stats.toString());
    });`;
  await run(node, ["--input-type=module", "--eval", script], { cwd: folder });
  await writeFile(path.join(folder, "dist", "index.html"), page("./main.js"));
  await openBoth(context, path.join(folder, "dist"));
});

test("esbuild, with the worker, what it imports and the wasm as entries of their own", async (context) => {
  // esbuild leaves `new URL()` alone, so what it names has to be put beside the bundle.
  const folder = await emptyFolderWithPage();
  const dist = path.join(folder, "node_modules", "ternlight", "dist");
  const entries = [
    "main.js",
    ...["worker.js", "chat.js", "formats.js", "gguf.js", "maps.js", "signals.js", "split.js", "*.wasm"].map((name) =>
      path.join(dist, name),
    ),
  ];
  const options = ["--bundle", "--format=esm", "--outdir=out", "--entry-names=[name]", "--loader:.wasm=copy"];
  await run(host("esbuild/bin/esbuild"), [...entries, ...options], { cwd: folder });
  await writeFile(path.join(folder, "out", "index.html"), page("./main.js"));
  await openBoth(context, path.join(folder, "out"));
});

async function openBoth(context, folder) {
  for (const [name, headers, flavour] of flavours) {
    await context.test(name, async (context) => {
      const { printed } = await open(context, await serveFolder(context, folder, headers));
      await expectAnswer(printed, { flavour });
    });
  }
}
