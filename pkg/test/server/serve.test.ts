/** The command `serve`, on every runtime. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createServer, request } from "node:http";
import { type AddressInfo, connect } from "node:net";
import { hostname, tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { body, CONTINUATION, chunks, DEMO, error } from "./support/app.ts";
import { idle, runtimes, type Server, serve, status, until } from "./support/command.ts";

const ask = { model: "ternlight-demo", prompt: "Once upon a time", temperature: 0, max_tokens: 12 };
const post = ({ url }: Server, path: string, body: object, init: RequestInit = {}) =>
  fetch(url + path, { method: "POST", body: JSON.stringify(body), ...init });

for (const runtime of Object.keys(runtimes)) {
  test(`${runtime}: answers, forgets clients that go, and stops`, async (context) => {
    const server = await serve(context, [], { runtime });
    const { models } = JSON.parse(server.out());
    assert.deepEqual(models, ["ternlight-demo"]);
    const messages = [{ role: "user", content: ask.prompt }];
    const { choices } = await body(post(server, "/v1/chat/completions", { ...ask, messages }));
    assert.equal(choices[0].message.content, CONTINUATION);
    const streamed = await chunks(post(server, "/v1/completions", { ...ask, stream: true }));
    assert.equal(streamed.map(({ choices }) => choices[0].text).join(""), CONTINUATION);

    await leave(server, 25);
    await idle(server);

    // Eight, because one may be over before anybody has asked whether it runs.
    const long = post(server, "/v1/completions", { ...ask, n: 8, max_tokens: 300, ignore_eos: true });
    await until(async () => (await status(server)).running > 0);
    server.child.kill("SIGTERM");
    await until(async () => (await fetch(`${server.url}/readyz`)).status === 503);
    assert.equal((await error(post(server, "/v1/completions", ask), 503)).code, "stopping");
    assert.equal((await body(long)).usage.completion_tokens, 8 * 300);
    assert.equal(await server.ended, 0, server.err());
  });
}

/** Clients that ask for long answers, streamed, plain or of a long prompt, and break off. */
async function leave(server: Server, count: number): Promise<void> {
  const prompt = Array(400).fill(5);
  const one = async (i: number) => {
    const more = [{ stream: true }, {}, { prompt }][i % 3];
    const abort = new AbortController();
    const going = post(
      server,
      "/v1/completions",
      { ...ask, max_tokens: 100_000, ignore_eos: true, ...more },
      { signal: abort.signal },
    );
    setTimeout(() => abort.abort(), 20 + 15 * (i % 8));
    await going.then((response) => response.text()).catch(() => {});
  };
  await Promise.all(Array.from({ length: count }, (_, i) => one(i)));
}

/** Sends requests for long answers, streamed and plain, on connections of its own, and says when each is sent. */
const CLIENT = `
const { connect } = require("node:net");
const [port, count] = process.argv.slice(-2).map(Number);
let sent = 0;
for (let i = 0; i < count; i++) {
  const body = JSON.stringify({ ...${JSON.stringify(ask)}, max_tokens: 100000, ignore_eos: true, stream: i % 2 === 0 });
  const head = "POST /v1/completions HTTP/1.1\\r\\nHost: localhost\\r\\nContent-Type: application/json\\r\\n";
  connect(port, "127.0.0.1").on("error", () => {}).resume()
    .write(head + "Content-Length: " + body.length + "\\r\\n\\r\\n" + body, () => ++sent === count && console.log("sent"));
}
`;

/** Steps, of hundreds, that the engine may compute for clients that have gone, while their connections' ends are on their way. */
const STEPS_LEFT = 40;

for (const runtime of ["Node 24", "Deno", "Bun"])
  test(`a hundred clients that were killed leave nothing behind (${runtime})`, async (context) => {
    const server = await serve(context, ["--max-waiting", "64"], { runtime });
    const { port } = new URL(server.url);
    const steps = async () => {
      const text = await (await fetch(`${server.url}/metrics`)).text();
      return Number(/^ternlight_step_seconds_count\{.*\} (\d+)$/m.exec(text)![1]);
    };
    for (let killed = 0; killed < 100; killed += 50) {
      const client = spawn(process.execPath, ["-e", CLIENT, port, "50"], { stdio: ["ignore", "pipe", "inherit"] });
      await once(client.stdout!, "data");
      await until(async () => (await body(fetch(`${server.url}/status`))).active === 50);
      client.kill("SIGKILL");
      await once(client, "exit");
      // It answers this when it has heard of their ends.
      const before = await steps();
      await idle(server, 2000);
      const more = (await steps()) - before;
      assert.ok(more <= STEPS_LEFT, `${more} steps`);
    }
    const { choices } = await body(post(server, "/v1/completions", ask));
    assert.equal(choices[0].text, CONTINUATION);
  });

test("options of a load are flags of it", async (context) => {
  const prompt = "Once upon a time there was a king who had a daughter. ".repeat(4);
  const flags = ["--prefill", prompt, "--idle-warmup", "--head", "q8_0", "--weight-prefetch", "off"];
  const server = await serve(context, [...flags, "--recurrent-states", "4", "--context", "128"]);
  for (const end of ["She", "He"]) {
    const { usage } = await body(post(server, "/v1/completions", { ...ask, prompt: prompt + end }));
    assert.ok(usage.prompt_tokens_details.cached_tokens >= 32, "whole blocks were there");
  }
});

test("a second signal ends it at once", async (context) => {
  const server = await serve(context, ["--shutdown-timeout", "600"]);
  const { signal } = new AbortController();
  void post(server, "/v1/completions", { ...ask, max_tokens: 400, ignore_eos: true, n: 100 }, { signal }).catch(
    () => {},
  );
  await until(async () => (await status(server)).running > 0);
  server.child.kill("SIGTERM");
  await until(async () => (await fetch(`${server.url}/readyz`)).status === 503);
  server.child.kill("SIGTERM");
  assert.equal(await server.ended, 143);
});

test("it listens while its model comes, and tells how far it is", async (context) => {
  const file = await readFile(new URL("model.safetensors", DEMO));
  let waiting = true;
  const files = createServer(async (request, response) => {
    const name = request.url!.split("/").at(-1)!;
    if (name !== "model.safetensors") {
      const found = await readFile(new URL(name, DEMO)).catch(() => null);
      return response.writeHead(found ? 200 : 404).end(found);
    }
    const [, first = 0, last = file.length - 1] = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? "") ?? [];
    const piece = file.subarray(Number(first), Number(last) + 1);
    const range = `bytes ${first}-${Number(first) + piece.length - 1}/${file.length}`;
    response.writeHead(206, { "content-range": range, "content-length": piece.length, etag: '"1"' });
    // The header comes at once, the rest by and by.
    let at = Number(first) === 0 ? piece.length : 0;
    response.write(piece.subarray(0, at));
    for (; waiting && at < piece.length; at += 1000) {
      response.write(piece.subarray(at, at + 1000));
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    response.end(piece.subarray(at));
  });
  await new Promise<void>((resolve) => files.listen(0, "127.0.0.1", resolve));
  context.after(() => files.close());
  const { port: from } = files.address() as AddressInfo;
  const free = createServer().listen(0, "127.0.0.1");
  await new Promise((resolve) => free.once("listening", resolve));
  const { port } = free.address() as AddressInfo;
  await new Promise((resolve) => free.close(resolve));
  const model = `slow=http://127.0.0.1:${from}/model/`;
  const starting = serve(context, ["--port", String(port), "--no-cache", "--max-waiting", "5", model]);
  const url = `http://127.0.0.1:${port}`;
  const asked = (path: string, init?: RequestInit) => fetch(url + path, init).catch(() => null);
  await until(async () => {
    const { status, progress } = (await (await asked("/readyz"))?.json()) ?? {};
    return status === "loading" && progress?.loaded > 0 && progress.loaded < progress.total;
  });
  assert.equal((await asked("/livez"))!.status, 200);
  const early = await asked("/v1/completions", { method: "POST", body: JSON.stringify({ ...ask, model: "slow" }) });
  assert.ok(early!.headers.get("retry-after"));
  const { code, message } = await error(early!, 503);
  assert.equal(code, "model_loading");
  assert.match(message, /the model slow is being loaded, \d+ % of \d+ bytes/);
  waiting = false;
  const server = await starting;
  assert.equal(server.url, url);
  assert.equal((await fetch(`${url}/readyz`)).status, 200);
  await assert.rejects(serve(context, ["/nowhere/model.gguf"]), /it ended with 1: .*NotFound/s);
});

test("flags also come from the environment, and a flag wins", async (context) => {
  const env = {
    TERNLIGHT_API_KEY: "a\nb",
    TERNLIGHT_CONTEXT: "64",
    TERNLIGHT_NAME: "x",
    TERNLIGHT_NO_PREFIX_REUSE: "1",
  };
  const server = await serve(context, ["--name", "mine", "--log", "json"], { env });
  assert.equal((await fetch(`${server.url}/v1/models`)).status, 401);
  const headers = { authorization: "Bearer b" };
  const { data } = await body(fetch(`${server.url}/v1/models`, { headers }));
  assert.deepEqual(
    data.map(({ id }: { id: string }) => id),
    ["mine"],
  );
  const props = await body(fetch(`${server.url}/props`, { headers }));
  assert.equal(props.default_generation_settings.n_ctx, 64);
  await until(async () => server.err().trim().split("\n").length === 3);
  const [first] = server
    .err()
    .split("\n")
    .map((line) => JSON.parse(line || "null"));
  assert.deepEqual([first.method, first.path, first.status], ["GET", "/v1/models", 401]);
});

test("what Kubernetes says of a service called ternlight is no port to listen on", async (context) => {
  const env = { TERNLIGHT_PORT: "tcp://10.96.0.7:80", TERNLIGHT_PORT_80_TCP: "tcp://10.96.0.7:80" };
  const folder = await mkdtemp(join(tmpdir(), "ternlight-"));
  context.after(() => rm(folder, { recursive: true }));
  // A socket by its variable: any value of --port beside it would be refused.
  const server = await serve(context, [], { env: { ...env, TERNLIGHT_UNIX: join(folder, "s.sock") }, free: false });
  assert.match(server.url, /^unix:/);
  await assert.rejects(
    serve(context, [], { env: { TERNLIGHT_PORT: "http://10.96.0.7" }, free: false }),
    /TERNLIGHT_PORT must be/,
  );
});

test("wrong flags and variables are told before anything is loaded", async (context) => {
  const wrong: [string[], Record<string, string>, RegExp][] = [
    [["--port", "x"], {}, /--port must be an integer from 0 to 65535/],
    [["--max-body", "many"], {}, /--max-body must be an integer/],
    [["--adapter", "file"], {}, /NAME=FILE/],
    [["--tls-cert", "x"], {}, /go together/],
    [["ternlight-demo", "ternlight-demo"], {}, /two models are called/],
    [[], { TERNLIGHT_MAX_REQUESTS: "-1" }, /TERNLIGHT_MAX_REQUESTS must be/],
    [["--max-requests", "-2"], { TERNLIGHT_MAX_REQUESTS: "5" }, /--max-requests must be .*, not -2/],
    [[], { TERNLIGHT_NO_REPACK: "maybe" }, /TERNLIGHT_NO_REPACK must be 1 or 0/],
    [[], { TERNLIGHT_API_KEY: "" }, /TERNLIGHT_API_KEY is empty/],
  ];
  for (const [args, env, message] of wrong) {
    await assert.rejects(serve(context, args, { env }), (error: Error) => {
      assert.match(error.message, /^it ended with 2/);
      assert.match(error.message, message);
      return true;
    });
  }
});

test("several models have their names", async (context) => {
  const server = await serve(context, ["one=ternlight-demo", "two=ternlight-demo"]);
  for (const model of ["one", "two"]) {
    const reply = await body(post(server, "/v1/completions", { ...ask, model }));
    assert.deepEqual([reply.model, reply.choices[0].text], [model, CONTINUATION]);
  }
});

/** The status of an answer to a request that names its server so. */
const addressed = (port: string, host: string, headers: Record<string, string> = {}) =>
  new Promise<number>((resolve, reject) => {
    request({ port, host: "127.0.0.1", path: "/v1/models", headers: { host, ...headers } }, (response) =>
      resolve(response.resume().statusCode!),
    )
      .on("error", reject)
      .end();
  });

for (const runtime of ["Node 24", "Deno", "Bun"])
  test(`a socket that a killed server left is taken over, and a live one is not (${runtime})`, async (context) => {
    const folder = await mkdtemp(join(tmpdir(), "ternlight-"));
    context.after(() => rm(folder, { recursive: true }));
    const socketPath = join(folder, "s.sock");
    const first = await serve(context, ["--unix", socketPath], { runtime });
    await assert.rejects(serve(context, ["--unix", socketPath], { runtime }), /cannot listen on/);
    first.child.kill("SIGKILL");
    await first.ended;
    assert.ok(existsSync(socketPath));
    await serve(context, ["--unix", socketPath], { runtime });
    const file = join(folder, "file");
    await writeFile(file, "mine");
    await assert.rejects(serve(context, ["--unix", file], { runtime }), /cannot listen on/);
    assert.equal(await readFile(file, "utf8"), "mine");
  });

test("it listens on a Unix socket", async (context) => {
  const folder = await mkdtemp(join(tmpdir(), "ternlight-"));
  context.after(() => rm(folder, { recursive: true }));
  const socketPath = join(folder, "s.sock");
  const server = await serve(context, ["--unix", socketPath]);
  assert.equal(server.url, `unix:${socketPath}`);
  const status = await new Promise((resolve, reject) => {
    request({ socketPath, path: "/v1/models" }, (response) => resolve(response.resume().statusCode))
      .on("error", reject)
      .end();
  });
  assert.equal(status, 200);
  await assert.rejects(serve(context, ["--unix", socketPath, "--port", "1"]), /either --unix or/);
  // A flag wins over the variable of another one that it excludes.
  const other = join(folder, "t.sock");
  const cache = { TERNLIGHT_CACHE: folder };
  const one = await serve(context, ["--unix", other, "--no-cache"], { env: { TERNLIGHT_PORT: "8000", ...cache } });
  assert.equal(one.url, `unix:${other}`);
  const two = await serve(context, ["--port", "0"], { env: { TERNLIGHT_UNIX: join(folder, "u.sock") } });
  assert.match(two.url, /^http:/);
});

test("the Host header is checked on loopback", async (context) => {
  const server = await serve(context, ["--allowed-host", "models.example"]);
  const { port } = new URL(server.url);
  for (const host of ["localhost", `127.0.0.1:${port}`, "[::1]:80", "MODELS.example:80"])
    assert.equal(await addressed(port, host), 200, host);
  for (const host of ["evil.example", "localhost.evil.example", "127.0.0.1.nip.io", "127.0.0.1.evil.example"])
    assert.equal(await addressed(port, host), 403, host);
});

test("so it is on every address, as in a container, until there is a key", async (context) => {
  const wide = ["--host", "0.0.0.0"];
  const open = new URL((await serve(context, wide)).url);
  for (const host of ["localhost:8000", "192.168.1.9:8000", hostname()])
    assert.equal(await addressed(open.port, host), 200, host);
  for (const host of ["evil.example:8000", "ternlight:8000"]) assert.equal(await addressed(open.port, host), 403, host);
  const named = new URL((await serve(context, [...wide, "--allowed-host", "ternlight"])).url);
  assert.equal(await addressed(named.port, "ternlight:8000"), 200);
  assert.equal(await addressed(named.port, "evil.example:8000"), 403);
  const keyed = new URL((await serve(context, [...wide, "--api-key", "k"])).url);
  assert.equal(await addressed(keyed.port, "models.example", { authorization: "Bearer k" }), 200);
  assert.equal(await addressed(keyed.port, "models.example"), 401);
});

test("what is no origin is refused", async (context) => {
  await assert.rejects(serve(context, ["--cors", "http://a.example/"]), /cors must be .*origins.*without a path/);
});

test("comments of a file of keys are none", async (context) => {
  const folder = await mkdtemp(join(tmpdir(), "ternlight-keys-"));
  const file = join(folder, "keys");
  context.after(() => rm(folder, { recursive: true }));
  // An editor's mark of UTF-8 and an indent do not make a key of a comment.
  await writeFile(file, "\ufeff# team A\nabc\r\n  # team B\n");
  const { url } = await serve(context, ["--api-key-file", file]);
  const asked = async (key: string) =>
    (await fetch(`${url}/v1/models`, { headers: { authorization: `Bearer ${key}` } })).status;
  const statuses = [await asked("abc"), await asked("# team A"), await asked("# team B")];
  assert.deepEqual(statuses, [200, 401, 401]);
});

test("a file of keys in UTF-16 is refused by its name", async (context) => {
  const folder = await mkdtemp(join(tmpdir(), "ternlight-keys-"));
  const file = join(folder, "keys");
  context.after(() => rm(folder, { recursive: true }));
  for (const mark of ["\ufeff", ""]) {
    await writeFile(file, `${mark}abc\n`, "utf16le");
    await assert.rejects(serve(context, ["--api-key-file", file]), /--api-key-file: .*keys is no text in UTF-8/);
  }
});

test("an allowed host is a name alone", async (context) => {
  for (const name of ["models.example:8080", "https://models.example", "*", "*.example"])
    await assert.rejects(serve(context, ["--allowed-host", name]), /allowedHosts must be names .*without scheme, port/);
  const { port } = new URL((await serve(context, ["--host", "::1", "--allowed-host", "[::1]"])).url);
  assert.equal((await fetch(`http://[::1]:${port}/readyz`)).status, 200);
});

test("a terminal that hangs up lets the server end as SIGTERM does", async (context) => {
  const server = await serve(context);
  server.child.kill("SIGHUP");
  assert.equal(await server.ended, 0, server.err());
});

test("a template that cannot be read ends it before it is ready", async (context) => {
  await assert.rejects(serve(context, ["--chat-template", "{% bad"]), /BadTemplate/);
});

test("a probe of HTTP/1.0 names no host", async (context) => {
  const { port } = new URL((await serve(context)).url);
  const socket = connect(Number(port), "127.0.0.1");
  socket.write("GET /readyz HTTP/1.0\r\n\r\n");
  let answer = "";
  for await (const part of socket) answer += part;
  assert.match(answer, /^HTTP\/1\.[01] 200/);
});

test("a client of HTTP/1.0 gets a stream without chunks", async (context) => {
  const server = await serve(context);
  const { port } = new URL(server.url);
  const sent = JSON.stringify({ ...ask, stream: true });
  const raw = async (version: string) => {
    const socket = connect(Number(port), "127.0.0.1");
    const head = `POST /v1/completions HTTP/${version}\r\nHost: 127.0.0.1:${port}\r\nConnection: close\r\n`;
    socket.write(`${head}Content-Length: ${sent.length}\r\n\r\n${sent}`);
    let text = "";
    for await (const part of socket) text += part;
    return text;
  };
  assert.match(await raw("1.1"), /transfer-encoding: chunked[\s\S]*\r\n\r\n[0-9a-f]+\r\n(id: .*\n)?data: /i);
  assert.match(await raw("1.0"), /\r\n\r\n(id: .*\n)?data: /);
});

test("requests of a file are answered before it is ready", async (context) => {
  const folder = await mkdtemp(join(tmpdir(), "ternlight-"));
  context.after(() => rm(folder, { recursive: true }));
  const file = join(folder, "warm.jsonl");
  const prompt = "Once upon a time there was a king who had a daughter. ".repeat(8);
  await writeFile(file, `${JSON.stringify({ prompt })}\n`);
  const server = await serve(context, ["--warmup", file]);
  const { usage } = await body(post(server, "/v1/completions", { ...ask, prompt }));
  assert.ok(usage.prompt_tokens_details.cached_tokens >= 32);
  await writeFile(file, "{}\nnonsense\n");
  await assert.rejects(serve(context, ["--warmup", file]), /line 1 .*prompt is missing/);
});
