/** The command `chat`: against a model and against a server. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { fileURLToPath } from "node:url";
import { readChat } from "../../src/openai/chat.ts";
import { fieldsOf } from "../../src/openai/sampling.ts";
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

test("an address without a server is told as one", async (context) => {
  const { url } = await answering(context, () => {}, {});
  const bare = await chat([url], ["Hi"]);
  assert.equal(bare.code, 1);
  assert.match(bare.err, /Network: http:.*: its \/v1\/models is no list of models \(status 200\)/);
  const nobody = await chat(["http://127.0.0.1:1"], ["Hi"]);
  assert.equal(nobody.code, 1);
  assert.match(nobody.err, /Network: http:\/\/127\.0\.0\.1:1: no server answers: /);
});

test("a script whose answer fails ends with 1, and nothing more is asked", async (context) => {
  let asked = 0;
  const { url } = await answering(context, (_, response) => {
    asked++;
    response.writeHead(500).end(JSON.stringify({ error: { message: "it broke" } }));
  });
  const failed = await chat([url], ["Hi", "Again"]);
  assert.equal(failed.code, 1);
  assert.match(failed.err, /Network: http:.*: it broke/);
  assert.equal(asked, 1);
});

/** A file's name in a folder that ends with the test. */
async function fresh(context: TestContext): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "ternlight-"));
  context.after(() => rm(folder, { recursive: true }));
  return join(folder, "chat.json");
}

type Answering = (body: Record<string, unknown>, response: ServerResponse) => void;

/** A server that has one model and answers chats. */
async function answering(
  context: TestContext,
  answer: Answering,
  models: object = { data: [{ id: "m" }] },
): Promise<{ url: string }> {
  const server = createServer(async (request, response) => {
    if (request.url === "/v1/models") return response.end(JSON.stringify(models));
    let text = "";
    for await (const part of request) text += part;
    answer(JSON.parse(text), response);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  context.after(() => server.close());
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` };
}

test("commands change the conversation while it goes on", async (context) => {
  const file = await fresh(context);
  const lines = [
    "/system Once upon",
    " a time",
    `/save ${file}`,
    "/system",
    `/load ${file}`,
    "/save",
    "/load",
    "/load /no",
  ];
  const { out, err, code } = await chat(["--threads", "1", ...greedy], [...lines, "/exit"]);
  assert.equal(code, 0, err);
  assert.match(out, /\S/);
  const { messages } = JSON.parse(await readFile(file, "utf8"));
  assert.deepEqual(
    messages.map(({ role }: { role: string }) => role),
    ["system", "user", "assistant"],
  );
  assert.equal(messages[0].content, "Once upon");
  assert.match(err, /\n3 messages\n\/save needs a FILE\n\/load needs a FILE\n\/no: /);
  const again = await chat(
    ["--threads", "1", ...greedy],
    [`/load ${file}`, "/system Once upon", "a time", `/save ${file}`],
  );
  assert.equal(again.code, 0, again.err);
  assert.deepEqual(JSON.parse(await readFile(file, "utf8")).messages, [
    { role: "system", content: "Once upon" },
    { role: "user", content: "a time" },
    { role: "assistant", content: again.out.slice(0, -1) },
  ]);
});

test("Ctrl-C stops an answer of a model and of a server, which stays in the conversation", async (context) => {
  const gone = Promise.withResolvers<void>();
  const { url } = await answering(context, async (_, response) => {
    response.on("close", gone.resolve);
    while (!response.destroyed) {
      response.write('data: {"choices":[{"delta":{"content":" tale"}}]}\n\n');
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  });
  const model = ["--threads", "1", "--temp", "0", "--ignore-eos", "--on-context-full", "shift"];
  for (const flags of [model, [url]]) {
    const file = await fresh(context);
    const child = spawn(process.execPath, [cli, "chat", ...flags]);
    const closed = once(child, "close");
    let out = "";
    const begun = new Promise<void>((resolve) => {
      child.stdout.on("data", (text) => {
        out += text;
        if (out.length > 20) resolve();
      });
    });
    child.stdin.write("Once upon a time\n");
    await Promise.race([begun, closed]);
    child.kill("SIGINT");
    child.stdin.end(`/save ${file}\n/exit\n`);
    await closed;
    const { messages } = JSON.parse(await readFile(file, "utf8"));
    assert.equal(messages.length, 2);
    assert.deepEqual(messages[1], { role: "assistant", content: out.slice(0, -1) });
  }
  await gone.promise;
});

test("a server gets the flags that it can be asked for, and others are refused", async (context) => {
  let asked: Record<string, unknown> = {};
  const { url } = await answering(context, (body, response) => {
    asked = body;
    response.end('data: {"choices":[{"delta":{"content":"Hi"}}]}\n\ndata: [DONE]\n\n');
  });
  const common = { model: "m", messages: [{ role: "user", content: "x" }], stream: true };
  assert.equal((await chat([url], ["x"])).out, "Hi\n");
  assert.deepEqual(asked, common);
  const flags =
    "-n 5 --temp 0.5 --top-k 3 --repetition-penalty 1.5 --penalty-last-n 0 --ignore-eos --typical-p 0.5 --mirostat-tau 2 " +
    "--dynamic-temp 0.1 --samplers topK,typicalP --logit-bias 5=-1.5 --seed 7 --stop END";
  assert.equal((await chat([url, ...flags.split(" ")], ["x"])).code, 0);
  assert.deepEqual(asked, {
    ...common,
    max_tokens: 5,
    temperature: 0.5,
    top_k: 3,
    repeat_penalty: 1.5,
    repeat_last_n: -1,
    ignore_eos: true,
    typical_p: 0.5,
    mirostat: 2,
    mirostat_tau: 2,
    dynatemp_range: 0.1,
    samplers: ["top_k", "typ_p"],
    logit_bias: [[5, -1.5]],
    seed: 7,
    stop: ["END"],
  });
  const { model, messages, stream, ...fields } = asked;
  const read = readChat({ model, messages, stream, ...fields }, 9).options;
  assert.deepEqual(fieldsOf(read), { fields, unknown: [] });
  for (const flag of [
    "--context=64",
    "--threads=1",
    "--adaptive-top-k",
    "--prompt-lookup",
    "--chat-template={{ x }}",
  ]) {
    const { code, err } = await chat([url, flag], ["x"]);
    assert.equal(code, 2, flag);
    assert.match(err, new RegExp(`${flag.split("=")[0]} has no effect on a server`));
  }
});
