/** The command `chat`: against a model and against a server. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { CONTINUATION } from "../server/support/app.ts";
import { serve } from "../server/support/command.ts";

const cli = fileURLToPath(new URL("../../dist/cli.js", import.meta.url));

async function chat(
  args: readonly string[],
  lines: readonly string[],
): Promise<{ out: string; err: string; code: number }> {
  const child = spawn(process.execPath, [cli, "chat", ...args], { stdio: ["pipe", "pipe", "pipe"] });
  const found = { out: "", err: "" };
  child.stdout.on("data", (text) => (found.out += text));
  child.stderr.on("data", (text) => (found.err += text));
  child.stdin.end(`${lines.join("\n")}\n`);
  const [code] = await once(child, "close");
  return { ...found, code };
}

const greedy = ["--temp", "0", "-n", "12"];

test("it talks with a model, and keeps and takes up conversations", async (context) => {
  const folder = await mkdtemp(join(tmpdir(), "ternlight-"));
  context.after(() => rm(folder, { recursive: true }));
  const file = join(folder, "chat.json");
  const first = await chat(["--threads", "1", ...greedy], ["Once upon a time", `/save ${file}`, "/nothing", "/exit"]);
  assert.equal(first.code, 0, first.err);
  assert.equal(first.out, `${CONTINUATION}\n`);
  assert.match(first.err, /there is no \/nothing/);
  const { messages } = JSON.parse(await readFile(file, "utf8"));
  assert.deepEqual(messages, [
    { role: "user", content: "Once upon a time" },
    { role: "assistant", content: CONTINUATION },
  ]);
  const again = await chat(["--threads", "1", ...greedy, "--load", file], ["/clear", "Once upon a time"]);
  assert.equal(again.out, `${CONTINUATION}\n`);
  const system = await chat(["--threads", "1", ...greedy, "--system", "Once upon "], ["a time"]);
  assert.equal(system.out, `${CONTINUATION}\n`);
  assert.equal((await chat(["--load", cli], [])).code, 1);
});

test("it talks with a server", async (context) => {
  const { url } = await serve(context, ["--api-key", "secret"]);
  const told = await chat([url, "--api-key", "secret", ...greedy], ["Once upon a time"]);
  assert.equal(told.out, `${CONTINUATION}\n`, told.err);
  const denied = await chat([url, ...greedy], ["Once upon a time"]);
  assert.equal(denied.code, 1);
  assert.match(denied.err, /key/);
});
