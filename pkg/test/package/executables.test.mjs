/** The command line as one file, in an empty folder with an empty environment: engine, threads and demo model are inside. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { copyFile, mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { availableParallelism, tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { makeExecutable } from "../../scripts/executables.mjs";
import { greedy, run } from "./support.mjs";

const root = new URL("../../../", import.meta.url);
const beside = new URL("tests/golden/gguf/llama_bitlinear.TQ2_0.gguf", root);
const PROMPT = ["-p", "Once upon a time", "--temp", "0"];

for (const runtime of ["bun", "deno"]) {
  test(`made by ${runtime}`, { timeout: 240_000 }, async (context) => {
    const [made, folder] = await Promise.all(
      ["made", "empty"].map((name) => mkdtemp(path.join(tmpdir(), `ternlight-${name}-`))),
    );
    context.after(() => Promise.all([made, folder].map((name) => rm(name, { recursive: true, force: true }))));
    let executable;
    try {
      executable = await makeExecutable(runtime, made);
    } catch (error) {
      if (!error.message.startsWith("there is no https://dl.deno.land/")) throw error;
      return context.skip(error.message);
    }
    const program = path.join(folder, path.basename(executable));
    await copyFile(executable, program);
    const options = { cwd: folder, env: { HOME: folder } };
    const ternlight = async (...args) => (await run(program, args, options)).stdout;

    const { version } = JSON.parse(await readFile(new URL("pkg/package.json", root), "utf8"));
    assert.equal(await ternlight("--version"), `${version}\n`);

    const threads = Math.min(availableParallelism(), 8);
    const flavour = threads > 1 ? "threads-relaxed" : "single-relaxed";
    const answer = JSON.parse(await ternlight("run", "ternlight-demo", ...PROMPT, "-n", "32", "--json"));
    assert.deepEqual([answer.text, answer.model.flavour, answer.model.threads], [greedy, flavour, threads]);

    const pattern = ["--regex", " there (was|lived) an? [a-z]+\\."];
    assert.match(
      await ternlight("run", "ternlight-demo", ...PROMPT, ...pattern),
      /^ there (was|lived) an? [a-z]+\.\n$/,
    );

    await copyFile(beside, path.join(folder, "model.gguf"));
    assert.equal(JSON.parse(await ternlight("inspect", "model.gguf", "--json")).architecture, "llama");
    await ternlight("convert", "ternlight-demo", "demo.gguf");
    const converted = JSON.parse(await ternlight("run", "demo.gguf", ...PROMPT, "-n", "32", "--json"));
    assert.equal(converted.text, greedy);
    await assert.rejects(run(program, ["run", "absent.gguf", ...PROMPT], options), /NotFound: absent\.gguf/);

    const server = spawn(program, ["serve", "--port", "0", "--json"], {
      ...options,
      stdio: ["ignore", "pipe", "inherit"],
    });
    const ended = once(server, "exit");
    context.after(() => server.kill("SIGKILL"));
    const { url } = JSON.parse(String((await once(server.stdout, "data"))[0]).split("\n")[0]);
    const body = JSON.stringify({
      model: "ternlight-demo",
      prompt: "Once upon a time",
      max_tokens: 32,
      temperature: 0,
    });
    const headers = { "content-type": "application/json" };
    const response = await fetch(`${url}/v1/completions`, { method: "POST", headers, body });
    assert.equal((await response.json()).choices[0].text, greedy);
    server.kill("SIGTERM");
    assert.deepEqual(await ended, [0, null]);

    const left = (await readdir(folder)).filter((name) => !name.startsWith("."));
    assert.deepEqual(left.sort(), ["demo.gguf", "model.gguf", path.basename(program)]);
  });
}
