/** What people see in a console: uncaught errors, and objects that are printed. */
import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import path from "node:path";
import { test } from "node:test";
import { emptyFolderWithPackage, host, run } from "./support.mjs";

const runtimes = [
  ["Node 20", "node20/bin/node"],
  ["Node 24", "node24/bin/node"],
  ["Deno", ".bin/deno", "run", "--allow-all", "--node-modules-dir=manual"],
  ["Bun", ".bin/bun"],
];

const failing = {
  // What fails in the worker, what fails in this thread, and what fails later.
  "load.mjs": 'import { load } from "ternlight";\n\nawait load("./nowhere.gguf");\n',
  "option.mjs": 'import { load } from "ternlight";\n\nawait load("./nowhere.gguf", { thread: 2 });\n',
  "prompt.mjs":
    'import { load } from "ternlight"; import demo from "ternlight/demo"; const model = await load(demo, { contextLength: 8 });\n\n' +
    'await model.generate("Once upon a time there was a king who had three sons").text();\n',
  "sync.mjs":
    'import { load } from "ternlight"; import demo from "ternlight/demo"; const model = await load(demo);\n\n' +
    'model.generate("Once", { maxToken: 2 });\n',
};
const messages = {
  "load.mjs": /nowhere\.gguf/,
  "option.mjs": /there is no option "thread"; did you mean threads\?/,
  "prompt.mjs": /the prompt is longer than the context/,
  "sync.mjs": /there is no option "maxToken"; did you mean maxTokens\?/,
};

const shown = `
import { load } from "ternlight";
import demo from "ternlight/demo";

const model = await load(demo, { threads: 1 });
console.log(model);
const generation = model.generate("Once", { maxTokens: 2 });
console.log(generation);
await generation.text();
console.log(model.session());
await model.close();
`;

test("an uncaught error shows its message and the caller's line, and objects say what they are", async (context) => {
  const folder = await emptyFolderWithPackage();
  await writeFile(path.join(folder, "shown.mjs"), shown);
  for (const [file, program] of Object.entries(failing)) await writeFile(path.join(folder, file), program);
  for (const [name, program, ...args] of runtimes) {
    const start = (file) =>
      run(host(program), [...args, file], { cwd: folder, env: { ...process.env, NO_COLOR: "1" } });
    for (const file of Object.keys(failing)) {
      await context.test(`${name}, ${file}`, { timeout: 60_000 }, async () => {
        const error = await start(file).catch((error) => error);
        assert.notEqual(error.code ?? 0, 0, "it fails");
        const { stderr } = error;
        assert.ok(stderr.length < 6000, `${stderr.length} characters`);
        assert.match(stderr, messages[file]);
        assert.match(stderr, /EngineError/);
        assert.ok(Math.max(...stderr.split("\n").map((line) => line.length)) < 1500, "no line of minified code");
        // Of the stack, the first line is the caller's. Bun and Deno may print a stack of their own, whatever an error says.
        if (!name.startsWith("Node")) return;
        const [first] = stderr.match(/^\s*at .*$/m) ?? [];
        assert.match(first ?? "", new RegExp(`${file.replace(".", "\\.")}:3:`), stderr);
      });
    }
    await context.test(`${name}, objects`, { timeout: 60_000 }, async () => {
      const { stdout } = await start("shown.mjs");
      assert.match(stdout, /^Model \{/m);
      assert.match(stdout, /architecture: ["']BitNetForCausalLM["']/);
      assert.match(stdout, /^Generation \{/m);
      assert.match(stdout, /await generation\.text\(\)/);
      assert.match(stdout, /^Session \{ tokens: 0, messages: 0 \}$/m);
      assert.ok(stdout.length < 1500, `${stdout.length} characters`);
    });
  }
});
