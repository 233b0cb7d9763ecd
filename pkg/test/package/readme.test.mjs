/** The README's examples, as they stand there. */
import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { emptyFolderWithPackage, host, open, recipe, run, serve, startServer } from "./support.mjs";

const readme = await readFile(new URL("../../../README.md", import.meta.url), "utf8");

/** The first fenced block of a language. */
function example(language) {
  const block = new RegExp(`^\`\`\`${language}\\n(.*?)^\`\`\``, "ms").exec(readme);
  assert.ok(block, `README has an example in ${language}`);
  return block[1];
}

test("the README's program", async (context) => {
  const folder = await emptyFolderWithPackage(context);
  await writeFile(path.join(folder, "story.mjs"), example("js"));
  for (const [name, program, ...args] of [
    ["Node 20", "node20/bin/node"],
    ["Node 24", "node24/bin/node"],
    ["Deno", ".bin/deno", "run", "--allow-all", "--node-modules-dir=manual"],
    ["Bun", ".bin/bun"],
  ]) {
    await context.test(name, { timeout: 60_000 }, async () => {
      const { stdout, stderr } = await run(host(program), [...args, "story.mjs"], { cwd: folder });
      assert.match(stdout, /[a-z ]{20}.*\n\d+ tokens\/s, \d threads?\n$/s);
      assert.equal(stderr, "");
    });
  }
});

test("the README's doctor", async (context) => {
  const folder = await emptyFolderWithPackage(context);
  const files = path.join(folder, "node_modules", "ternlight", "models", "ternlight-demo");
  const server = await serve({ mounts: { "/": files }, headers: {} });
  context.after(() => server.close());
  const program = await recipe("README.md", "ternlight/doctor");
  assert.match(program, /"https:\S+"/);
  await writeFile(
    path.join(folder, "doctor.mjs"),
    program.replace(/"https:\S+"/, JSON.stringify(`${server.url}model.safetensors`)),
  );
  const { stdout } = await run(process.execPath, ["doctor.mjs"], { cwd: folder });
  assert.match(stdout, /^note pages of other origins may not read it/m);
});

test("the README's adapters", async (context) => {
  const folder = await emptyFolderWithPackage(context);
  const server = await serve({
    mounts: { "/": fileURLToPath(new URL("../../../tests/golden/", import.meta.url)) },
    headers: {},
  });
  context.after(() => server.close());
  const files = {
    "base.gguf": "gguf/llama_f32.F32.gguf",
    "pirate-lora/": "lora/llama_f32.lora/",
    "terse.gguf": "lora/llama_f32.lora.gguf",
  };
  let program = await recipe("README.md", "loadAdapter");
  for (const [name, file] of Object.entries(files)) {
    assert.ok(program.includes(name));
    program = program.replace(`https://example.org/${name}`, server.url + file);
  }
  program = program.replace('// called "terse"', "").replace('"terse"', '"llama_f32.lora"');
  program = program.replaceAll("maxTokens: 20", "maxTokens: 20, temperature: 0");
  await writeFile(
    path.join(folder, "adapters.mjs"),
    `${program}console.log(plain !== adapted, model.adapters.length);\nawait model.close();\n`,
  );
  const { stdout, stderr } = await run(host("node24/bin/node"), ["adapters.mjs"], {
    cwd: folder,
    env: { ...process.env, XDG_CACHE_HOME: folder },
  });
  assert.equal(stderr, "");
  assert.equal(stdout, "true 1\n");
});

test("the README's page", async (context) => {
  const folder = await emptyFolderWithPackage(context);
  await writeFile(path.join(folder, "index.html"), example("html"));
  for (const vite of ["vite5", "vite6", "vite7", "vite8"]) {
    const bin = host(`${vite}/bin/vite.js`);
    await run(process.execPath, [bin, "build"], { cwd: folder });
    for (const command of ["dev", "preview"]) {
      await context.test(`${vite} ${command}`, async (context) => {
        const url = await startServer(context, process.execPath, [bin, command, "--host", "127.0.0.1"], {
          cwd: folder,
        });
        const { printed, seen } = await open(context, url);
        assert.match(printed, /\w/);
        // Browsers ask for an icon that nobody promised.
        const failures = seen.filter((line) => /^(\d|failed)/.test(line) && !line.endsWith("/favicon.ico"));
        assert.deepEqual(failures, []);
      });
    }
  }
});
