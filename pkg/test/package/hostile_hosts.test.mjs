/** Deno and Bun under attack, as Node is by the tests beside: cached files, links and pipes, servers, templates, sessions, terminals. */
import assert from "node:assert/strict";
import { cp, lstat, mkdtemp, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { modelServer, WEIGHTS } from "../source/support/stuck.mjs";
import { demoModel, host, run } from "./support.mjs";

const program = fileURLToPath(new URL("attacked.mjs", import.meta.url));
const cli = fileURLToPath(new URL("../../dist/cli.js", import.meta.url));
const pkg = fileURLToPath(new URL("../../", import.meta.url));

const HOSTS = {
  Node: ["node24/bin/node"],
  Deno: [".bin/deno", "run", "--allow-all", "--no-prompt"],
  Bun: [".bin/bun"],
};

async function folderOf(context) {
  const folder = await mkdtemp(path.join(tmpdir(), "ternlight-"));
  context.after(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

async function task([command, ...before], name, given) {
  const { stdout } = await run(host(command), [...before, program, name, JSON.stringify(given)], {
    timeout: 180_000,
    maxBuffer: 1 << 26,
  });
  return JSON.parse(stdout);
}

/** A server of raw answers by path; a function writes to the socket itself. */
async function rawServer(context, answers) {
  const server = createServer((socket) => {
    socket.on("error", () => {});
    socket.once("data", (data) => {
      const [, method, name] = /^(\w+) \/(\w*)/.exec(data.toString("latin1")) ?? [];
      const answer = answers[name];
      if (!answer) return socket.end("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n");
      if (typeof answer === "function") return answer(socket);
      const at = answer.indexOf("\r\n\r\n") + 4;
      socket.end(method === "HEAD" ? answer.subarray(0, at) : answer);
    });
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  context.after(() => server.close());
  return `http://127.0.0.1:${server.address().port}/`;
}

const answer = (status, headers, body = "") =>
  Buffer.concat([
    Buffer.from(`HTTP/1.1 ${status} x\r\n${headers.map((line) => `${line}\r\n`).join("")}\r\n`),
    Buffer.from(body),
  ]);

/** Sends the same piece until the other side has enough. */
function endless(socket) {
  socket.write("HTTP/1.1 200 OK\r\n\r\n");
  const piece = Buffer.alloc(1 << 20);
  const more = () => {
    while (!socket.destroyed && socket.write(piece));
    socket.once("drain", more);
  };
  more();
}

const bomb = gzipSync(Buffer.alloc(300 << 20));

const TEMPLATES = [
  "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
  "{% set a = 'a' * 1000000 %}{{ (a ~ 'b' ~ a) in (a * 4) }}",
  "{{ range(1000000)|select('in', range(1000000))|list|length }}",
];

for (const [name, command] of Object.entries(HOSTS)) {
  test(`${name}: cached files that others have changed`, { timeout: 240_000 }, async (context) => {
    const { url } = await modelServer(context);
    const directory = path.join(await folderOf(context), "cache");
    const { results, kept } = await task(command, "cached", { url, directory, weights: WEIGHTS });
    for (const [what, { right, listed, ms, untouched }] of Object.entries(results)) {
      assert.ok(right && listed, `${what}: other bits, or no list`);
      assert.ok(untouched, `${what}: written outside of the cache`);
      assert.ok(ms < 20_000, `${what}: ${ms} ms`);
    }
    assert.ok(kept);
  });

  test(`${name}: servers that lie, and what their errors tell`, { timeout: 240_000 }, async (context) => {
    const url = await rawServer(context, {
      huge: answer(206, ["content-range: bytes 0-9/140737488355328", "content-length: 10"], "0123456789"),
      bomb: answer(200, ["content-encoding: gzip", `content-length: ${bomb.length}`], bomb),
      // Its end comes while the first bytes are still being unpacked.
      closing: answer(200, ["content-encoding: gzip", "connection: close"], bomb),
      other: answer(206, ["content-range: bytes 7-16/5000000", "content-length: 10"], "0123456789"),
      page: answer(200, ["content-type: text/html", "content-length: 15"], "<!doctype html>"),
      file: answer(302, ["location: file:///etc/passwd", "content-length: 0"]),
      user: answer(302, ["location: http://joe:SECRET@127.0.0.1:9/?token=SECRET", "content-length: 0"]),
      cut: answer(200, ["content-length: 5000000"], "GGUF"),
      endless,
    });
    const urls = ["huge", "bomb", "closing", "other", "page", "file", "user", "cut"].map((one) => url + one);
    const secret = [
      "http://joe:SECRET@127.0.0.1:9/m.gguf?token=SECRET#SECRET",
      `${url.replace("//", "//joe:SECRET@")}user?token=SECRET`,
    ];
    const results = await task(command, "loads", { urls: [...urls, ...secret] });
    for (const [i, { code, said, ms }] of results.entries()) {
      const which = [...urls, ...secret][i];
      assert.match(String(code), /^(Network|NotFound|TooLarge|Truncated|BadMagic)$/, `${which}: ${code} ${said}`);
      assert.doesNotMatch(said, /SECRET/, which);
      assert.ok(ms < 30_000, `${which}: ${ms} ms`);
    }
    assert.equal(results[0].code, "TooLarge");
    // Deno leaves what it got for a range as it is.
    assert.equal(results[1].code, name === "Deno" ? "BadMagic" : "TooLarge");
    const { stdout } = await run(host(command[0]), [...command.slice(1), cli, "doctor", secret[0], "--json"]).catch(
      (error) => error,
    );
    assert.match(stdout, /127\.0\.0\.1:9/);
    assert.doesNotMatch(stdout, /SECRET/);
  });

  test(`${name}: templates and formats without an end`, { timeout: 240_000 }, async (context) => {
    const { url } = await modelServer(context);
    const { codes, gap } = await task(command, "bombs", { url, templates: TEMPLATES });
    assert.deepEqual(codes, [...TEMPLATES.map(() => "BadTemplate"), "BadConstraint"]);
    assert.ok(gap < 3000, `${gap} ms`);
  });

  test(`${name}: sessions, and models that are no files`, { timeout: 240_000 }, async (context) => {
    const folder = await folderOf(context);
    const ternlight = (...args) => run(host(command[0]), [...command.slice(1), cli, ...args], { timeout: 120_000 });
    const [session, mine] = [path.join(folder, "session"), path.join(folder, "mine")];
    await writeFile(mine, "mine");
    await symlink(mine, session);
    await ternlight("run", demoModel, "-p", "Once", "-n", "3", "--threads", "1", "--session", session).catch(() => {});
    assert.equal(await readFile(mine, "utf8"), "mine");
    await rm(session, { force: true });
    await ternlight("run", demoModel, "-p", "Once", "-n", "3", "--threads", "1", "--session", session);
    const made = await lstat(session);
    assert.ok(made.isFile());
    assert.equal(made.mode & 0o777, 0o600);
    // A session that is another's bytes.
    await writeFile(session, Buffer.alloc(300 << 20));
    const refused = await ternlight("run", demoModel, "-p", "Once", "--threads", "1", "--session", session).catch(
      (error) => error,
    );
    assert.match(refused.stderr, /not a saved session/);

    const model = path.join(folder, "model");
    await cp(demoModel, model, { recursive: true });
    await rm(path.join(model, "config.json"));
    await run("mkfifo", [path.join(model, "config.json")]);
    const piped = await ternlight("inspect", model).catch((error) => error);
    assert.match(piped.stderr, /config\.json: .*no regular file/);
    await rm(path.join(model, "config.json"));
    await symlink("/dev/zero", path.join(model, "config.json"));
    const zeros = await ternlight("inspect", model).catch((error) => error);
    assert.match(zeros.stderr, /config\.json: .*no regular file/);
  });

  test(`${name}: a terminal is sent nothing that it obeys`, { timeout: 120_000 }, async (context) => {
    const model = path.join(await folderOf(context), "model");
    await cp(demoModel, model, { recursive: true });
    const config = JSON.parse(await readFile(path.join(model, "config.json"), "utf8"));
    const evil = "x\x1b]52;c;ZXZpbA==\x07\x9b2J\u202e";
    await writeFile(
      path.join(model, "config.json"),
      JSON.stringify({ ...config, model_type: evil, architectures: [evil], _name_or_path: evil }),
    );
    const line = [host(command[0]), ...command.slice(1), cli, "inspect", model].map((word) => `'${word}'`).join(" ");
    const { stdout } = await run("script", ["-qec", line, "/dev/null"], {
      env: { ...process.env, NO_COLOR: "1" },
    }).catch((error) => error);
    assert.match(stdout, /x\\x1b\]52/);
    // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what must not come
    assert.doesNotMatch(stdout, /\x1b\]52|\x9b|\u202e/);
  });
}

test("Deno with the permissions that a load needs, and with fewer", { timeout: 240_000 }, async (context) => {
  const { url } = await modelServer(context);
  const folder = await folderOf(context);
  const [script, directory] = [path.join(folder, "program.mjs"), path.join(folder, "kept")];
  await writeFile(
    script,
    `import { load } from ${JSON.stringify(new URL("../../dist/node.js", import.meta.url).href)};
    const [, , source, cache] = process.argv;
    const model = await load(source, { threads: 2, ...(cache ? { cache } : {}) });
    const { text } = await model.generate("Once upon a time", { maxTokens: 8, temperature: 0 }).finished;
    console.log(JSON.stringify({ text, warnings: model.info.warnings }));
    await model.close();`,
  );
  const deno = async (source, permissions, ...cache) => {
    const args = ["run", "--no-prompt", ...permissions, script, source, ...cache];
    const { stdout, stderr } = await run(host(".bin/deno"), args, { env: { ...process.env, HOME: folder } });
    assert.equal(stderr, "");
    const { text, warnings } = JSON.parse(stdout);
    assert.match(text, /^ there lived a man/);
    assert.deepEqual(warnings, []);
  };
  const read = (...more) => `--allow-read=${[pkg, script, ...more]}`;
  const net = `--allow-net=${new URL(url).host}`;
  await deno(`${demoModel}/`, [read()]);
  await deno(url, [read(), net]);
  await deno(url, [read(directory), net, `--allow-write=${directory}`], directory);
  assert.ok((await readdir(directory)).length > 1);
  for (const [source, permissions] of [
    [`${demoModel}/`, []],
    [url, [read()]],
  ]) {
    await assert.rejects(deno(source, permissions), /NotCapable|Requires (net|read) access/);
  }
});
