/** The programs of examples/, as they stand, with the packed package. What they install besides comes from pkg/test/hosts. */
import assert from "node:assert/strict";
import { cp, readdir, readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { emptyFolderWithPackage, host, launch, run, serveFolder, startServer } from "../package/support.mjs";

const root = fileURLToPath(new URL("../../../", import.meta.url));
const node = process.execPath;
const env = { ...process.env, XDG_CACHE_HOME: "/nonexistent", NEXT_TELEMETRY_DISABLED: "1" };

/** A folder with the package and an example in it. */
async function example(name, prefix) {
  const folder = await emptyFolderWithPackage(prefix);
  await cp(path.join(root, "examples", name), folder, { recursive: true });
  return folder;
}

const programOf = (folder) => async (args, more) => (await run(node, args, { cwd: folder, env, ...more })).stdout;

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser?.close());

test("each example is listed, says how to run it, and asks for this package", async () => {
  const folders = (await readdir(path.join(root, "examples"), { withFileTypes: true })).filter((one) =>
    one.isDirectory(),
  );
  const list = await readFile(path.join(root, "examples", "README.md"), "utf8");
  const { version } = JSON.parse(await readFile(path.join(root, "pkg", "package.json"), "utf8"));
  const own = await readFile(fileURLToPath(import.meta.url), "utf8");
  assert.equal(folders.length, 8);
  for (const { name } of folders) {
    assert.ok(list.includes(`[${name}](${name}/README.md)`), `${name} is not listed`);
    assert.match(await readFile(path.join(root, "examples", name, "README.md"), "utf8"), /```sh\n/, name);
    const settings = name === "deno" ? "deno.json" : "package.json";
    assert.ok((await readFile(path.join(root, "examples", name, settings), "utf8")).includes(`^${version}`), name);
    assert.ok(own.includes(`example("${name}"`) || name === "extension", `${name} is not run here`);
  }
});

test("vite-chat", { timeout: 90_000 }, async (context) => {
  const folder = await example("vite-chat");
  const vite = host("vite8/bin/vite.js");
  const program = path.join(folder, "main.js");
  const text = await readFile(program, "utf8");
  await writeFile(program, text.replace("const messages = [];", "const messages = (globalThis.messages = []);"));
  await run(node, [vite, "build"], { cwd: folder });
  for (const command of ["preview", "dev"]) {
    const url = await startServer(context, node, [vite, command, "--host", "127.0.0.1"], { cwd: folder });
    const page = await browser.newPage();
    await page.goto(url);
    await page.getByText("Ready").waitFor({ timeout: 60_000 });
    await page.getByRole("textbox", { name: "Message" }).fill("Once upon a time");
    await page.getByRole("button", { name: "Send" }).click();
    await page.waitForFunction(() => /^Model: .{40}/s.test(document.querySelector("#log").lastChild?.textContent));
    // A question in the middle of an answer ends that first.
    await page.getByRole("textbox", { name: "Message" }).fill("The fox");
    await page.getByRole("button", { name: "Send" }).click();
    await page.waitForFunction(() => /^Model: .{9}/s.test(document.querySelector("#log").children[3]?.textContent));
    const messages = await page.evaluate(() => globalThis.messages);
    assert.deepEqual(
      messages.slice(0, 3).map(({ role }) => role),
      ["user", "assistant", "user"],
    );
    assert.ok(messages[1].content.length > 30 && messages[2].content === "The fox");
    await page.getByRole("button", { name: "Stop" }).click();
    assert.equal(await page.evaluate(() => crossOriginIsolated), true);
    await page.close();
  }
  const broken = await browser.newPage();
  const errors = [];
  broken.on("pageerror", (error) => errors.push(error.message));
  await broken.route("**/*.wasm", (route) => route.abort());
  const url = await startServer(context, node, [vite, "preview", "--host", "127.0.0.1"], { cwd: folder });
  await broken.goto(url);
  await broken.getByText(/The model could not be loaded/).waitFor({ timeout: 60_000 });
  await broken.getByRole("textbox", { name: "Message" }).fill("Once upon a time");
  await broken.getByRole("button", { name: "Send" }).click();
  await broken.waitForTimeout(300);
  assert.deepEqual(errors, []);
});

test("next-server", { timeout: 170_000 }, async (context) => {
  // Beside its own packages: it follows no links out of its root.
  const hosts = path.dirname(host(""));
  const folder = await example("next-server", path.join(hosts, "example-"));
  const config = path.join(folder, "next.config.mjs");
  await writeFile(
    config,
    (await readFile(config, "utf8")).replace(
      "export default {",
      `export default { turbopack: { root: ${JSON.stringify(hosts)} },`,
    ),
  );
  const next = host("next/dist/bin/next");
  await run(node, [next, "build"], { cwd: folder, env });
  const start = [next, "start", "-H", "127.0.0.1", "-p", "0"];
  const url = await startServer(context, node, start, { cwd: folder, env }, /http:\/\/\S+:\d+/);
  assert.equal((await fetch(`${url}/api/story`, { method: "POST", body: "{}" })).status, 400);
  const page = await browser.newPage();
  await page.goto(url);
  await page.getByRole("button", { name: "Tell" }).click();
  await page.waitForFunction(() => document.querySelector("output").textContent.length > 80, null, { timeout: 60_000 });
  assert.match(await page.getByRole("status").textContent(), /^Once upon a time/);
  await page.close();
});

test("cloudflare-worker", { timeout: 60_000 }, async (context) => {
  const folder = await example("cloudflare-worker");
  const model = `${await serveFolder(context, folder, {})}model/`;
  const {
    main,
    compatibility_date: date,
    vars,
  } = JSON.parse(await readFile(path.join(folder, "wrangler.json"), "utf8"));
  assert.deepEqual(Object.keys(vars), ["MODEL"]);
  const bundle = [main, "--bundle", "--format=esm", "--external:*.wasm", "--outfile=bundle.js"];
  await run(host("esbuild/bin/esbuild"), bundle, { cwd: folder });
  const config = `
using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [(name = "main", worker = .main), (name = "internet", network = (allow = ["private"]))],
  sockets = [(name = "http", address = "127.0.0.1:0", http = (), service = "main")],
  v8Flags = ["--wasm-max-mem-pages=1536", "--max-heap-size=32"],
);
const main :Workerd.Worker = (
  compatibilityDate = "${date}",
  modules = [
    (name = "worker", esModule = embed "bundle.js"),
    (name = "ternlight/single-relaxed.wasm", wasm = embed "node_modules/ternlight/dist/single-relaxed.wasm"),
  ],
  bindings = [(name = "MODEL", text = "${model}")],
);`;
  await writeFile(path.join(folder, "config.capnp"), config);
  const args = ["serve", "config.capnp", "--control-fd=1"];
  const port = await startServer(context, host(".bin/workerd"), args, { cwd: folder }, /"port":(\d+)/);
  const ask = (query = "") => fetch(`http://127.0.0.1:${port}/${query}`);
  for (const query of ["", "?beginning=The%20fox%20said"]) assert.match(await (await ask(query)).text(), /[a-z ]{20}/);
  assert.equal((await ask(`?beginning=${"a".repeat(401)}`)).status, 400);
});

test("retrieval", { timeout: 60_000 }, async () => {
  const folder = await example("retrieval");
  const program = programOf(folder);
  const first = await run(node, ["search.js"], { cwd: folder, env });
  assert.match(first.stderr, /4 passages, 4 of them new/);
  const lines = first.stdout.trim().split("\n");
  assert.equal(lines.length, 3);
  for (const line of lines) assert.match(line, /^-?0\.\d{3} (fox|kitchen)\.txt: [A-Z]/);
  // A passage is nearest to itself.
  const itself = await program(["search.js", "texts", "Soup wants a big pot and a small fire."]);
  assert.match(itself, /^1\.000 kitchen\.txt: Soup/);
  const again = await run(node, ["search.js"], { cwd: folder, env });
  assert.match(again.stderr, /4 passages, 0 of them new/);
  assert.equal(again.stdout, first.stdout);
});

test("deno", { timeout: 60_000 }, async () => {
  const folder = await example("deno");
  // Its names mean the packed package, which is installed beside it, instead of a registry's.
  const { imports } = JSON.parse(await readFile(path.join(folder, "deno.json"), "utf8"));
  const packed = Object.entries(imports).map(([name, target]) => {
    const [, exported] = /^npm:ternlight@\^[\d.]+(\/.*)?$/.exec(target) ?? assert.fail(target);
    return [name, `npm:ternlight${exported ?? ""}`];
  });
  await writeFile(path.join(folder, "deno.json"), JSON.stringify({ imports: Object.fromEntries(packed) }));
  const [, flags] = /deno run (.*) story\.ts/.exec(await readFile(path.join(folder, "README.md"), "utf8"));
  const args = [
    "run",
    "--node-modules-dir=manual",
    ...flags.split(" "),
    "--no-prompt",
    "story.ts",
    "The king had three sons, and",
  ];
  const { stdout } = await run(host(".bin/deno"), args, { cwd: folder, env });
  assert.match(stdout, /^The king had three sons, and.{60}/s);
});

test("extract-csv", { timeout: 60_000 }, async () => {
  const folder = await example("extract-csv");
  const [head, ...rows] = (await programOf(folder)(["extract.js", "letters.txt"])).trim().split("\n");
  assert.equal(head, "customer,item,count,mood");
  assert.equal(rows.length, 3);
  for (const row of rows)
    assert.match(row, /^("([^"]|"")+"|[^",]+),("([^"]|"")+"|[^",]+),\d{1,2},(happy|neutral|angry)$/);
});

test("agent", { timeout: 60_000 }, async () => {
  const folder = await example("agent");
  const printed = await programOf(folder)(["agent.js", "What is 17 times 23?"]);
  const [, a, b, product] = /^multiply\(\{"a":(\d+),"b":(\d+)\}\) → (\d+)\n/.exec(printed);
  assert.equal(Number(product), a * b);
  assert.doesNotMatch(printed, /There is no answer/);

  // The model is shown its call as a call, before what the tool has answered.
  const program = path.join(folder, "agent.js");
  const text = await readFile(program, "utf8");
  await writeFile(
    program,
    text.replace("await model.close();", "console.log(JSON.stringify(messages)); await model.close();"),
  );
  const printedAll = await programOf(folder)(["agent.js", "What is 17 times 23?"]);
  const [asked, called, answered, last] = JSON.parse(printedAll.trim().split("\n").at(-1));
  assert.equal(asked.role, "user");
  assert.equal(called.tool_calls[0].function.name, "multiply");
  assert.equal(called.content, "");
  assert.deepEqual(
    [answered.role, answered.name, answered.tool_call_id],
    ["tool", "multiply", called.tool_calls[0].id],
  );
  assert.deepEqual([last.role, "tool_calls" in last], ["assistant", false]);
  const ends = await programOf(folder)(["agent.js"], { env: { ...env, STEPS: "1" } });
  assert.match(ends, /^There is no answer after 1 steps\.$/m);
});
