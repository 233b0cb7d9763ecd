/** The recipes of docs/guide/deployment.md, with the packed package, as far as they run without their host. */
import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";
import { emptyFolderWithPackage, greedy, host, recipe, run, serveFolder, startServer } from "./support.mjs";

const GUIDE = "docs/guide/deployment.md";
const ask = JSON.stringify({ model: "model", prompt: "Once upon a time", max_tokens: 32, temperature: 0 });
const headers = { "content-type": "application/json" };
const root = new URL("../../../", import.meta.url);

test("Vercel's function answers, and keeps the model where it may", { timeout: 120_000 }, async (context) => {
  const folder = await emptyFolderWithPackage();
  const kept = path.join(folder, "kept");
  const text = (await recipe(GUIDE, "export async function POST")).replace("/tmp/ternlight", kept);
  await writeFile(path.join(folder, "completions.js"), text);
  await writeFile(
    path.join(folder, "call.js"),
    `import { POST } from ${JSON.stringify(pathToFileURL(path.join(folder, "completions.js")))};
const init = { method: "POST", body: ${JSON.stringify(ask)}, headers: { "content-type": "application/json" } };
const response = await POST(new Request("https://app.vercel.app/api/completions", init));
console.log((await response.json()).choices[0].text);
process.exit();
`,
  );
  const MODEL = `${await serveFolder(context, folder, {})}model/`;
  const options = { cwd: folder, env: { ...process.env, MODEL } };
  assert.equal((await run(host("node24/bin/node"), ["call.js"], options)).stdout, `${greedy}\n`);
  const { functions } = JSON.parse(await recipe(GUIDE, '"includeFiles"'));
  assert.deepEqual(Object.keys(functions), ["api/completions.js"]);
});

test("Deno Deploy's program serves", { timeout: 120_000 }, async (context) => {
  const folder = await emptyFolderWithPackage();
  await writeFile(path.join(folder, "main.js"), await recipe(GUIDE, "Deno.serve"));
  const env = {
    ...process.env,
    MODEL: `${await serveFolder(context, folder, {})}model/`,
    DENO_SERVE_ADDRESS: "tcp:127.0.0.1:0",
  };
  const args = ["run", "--allow-all", "--node-modules-dir=manual", "main.js"];
  const url = await startServer(context, host("deno/deno"), args, { cwd: folder, env });
  const response = await fetch(`${url}v1/completions`, { method: "POST", headers, body: ask });
  assert.equal((await response.json()).choices[0].text, greedy);
});

test("Cloudflare's and Fly's files name what there is", async () => {
  const { main, vars } = JSON.parse(await recipe(GUIDE, '"cpu_ms"'));
  assert.deepEqual([main, Object.keys(vars)], ["worker.js", ["MODEL"]]);
  assert.match(await recipe("docs/guide/edge.md", "export default"), /env\.MODEL/);
  const fly = await recipe(GUIDE, "[http_service]");
  const dockerfile = await readFile(new URL("deploy/Dockerfile", root), "utf8");
  assert.equal(/internal_port = (\d+)/.exec(fly)[1], /^EXPOSE (\d+)$/m.exec(dockerfile)[1]);
  assert.match(fly, /dockerfile = "deploy\/Dockerfile"/);
  const { stdout } = await run(process.execPath, [new URL("pkg/dist/cli.js", root).pathname, "serve", "--help"]);
  for (const [flag] of fly.matchAll(/--[\w-]+/g)) assert.ok(stdout.includes(`${flag} `), flag);
});
