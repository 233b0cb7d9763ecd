/** The files of deploy/: those that have a program here are read by it, and all name only metrics and flags that there are. */

import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { request } from "node:http";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { served } from "../server/support/app.ts";
import { serve, until } from "../server/support/command.ts";

const run = promisify(execFile);
const deploy = fileURLToPath(new URL("../../../deploy/", import.meta.url));
const PROMTOOL = process.env.PROMTOOL ?? "/usr/bin/promtool";
const NGINX = process.env.NGINX ?? "/usr/sbin/nginx";
const read = (name: string) => readFile(path.join(deploy, name), "utf8");

async function files(): Promise<string[]> {
  const entries = await readdir(deploy, { recursive: true, withFileTypes: true });
  return entries
    .filter((entry) => entry.isFile())
    .map((entry) => path.relative(deploy, path.join(entry.parentPath, entry.name)));
}

test("promtool accepts the alert rules, their tests and the configuration", async () => {
  const prometheus = path.join(deploy, "prometheus");
  await run(PROMTOOL, ["check", "rules", path.join(prometheus, "alerts.yml")]);
  await run(PROMTOOL, ["test", "rules", path.join(prometheus, "alerts_test.yml")]);
  for (const name of ["prometheus.yml", "batch.yml", "kubernetes.yml"])
    await run(PROMTOOL, ["check", "config", path.join(prometheus, name)]);
});

test("nginx accepts its file", async (context) => {
  const folder = await mkdtemp(path.join(tmpdir(), "ternlight-nginx-"));
  context.after(() => rm(folder, { recursive: true, force: true }));
  const whole = `pid ${folder}/pid; events {} http { access_log off; include ${deploy}nginx/ternlight.conf; }`;
  await writeFile(path.join(folder, "nginx.conf"), whole);
  await run(NGINX, ["-t", "-q", "-e", "stderr", "-p", folder, "-c", path.join(folder, "nginx.conf")]);
});

/** A port that was free a moment ago. */
async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as { port: number };
  await new Promise((resolve) => server.close(resolve));
  return port;
}

test("servers on loopback answer behind nginx, by a public name where they know it", async (context) => {
  const NAME = "models.example.com";
  const servers = await Promise.all([serve(context), serve(context, ["--allowed-host", NAME])]);
  const guide = await readFile(new URL("../../../docs/guide/server.md", import.meta.url), "utf8");
  const [, example] = /```nginx\n([\s\S]*?)```/.exec(guide)!;
  for (const [name, text] of Object.entries({ file: await read("nginx/ternlight.conf"), example: example! }))
    for (const [i, server] of servers.entries()) {
      const port = await freePort();
      const folder = await mkdtemp(path.join(tmpdir(), "ternlight-nginx-"));
      const own = text
        .replace(/\blisten [^;]+;/, "")
        .replace("location /", `listen 127.0.0.1:${port}; location /`)
        .replaceAll(/server 127\.0\.0\.1:\d+/g, `server ${new URL(server.url).host}`);
      const temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map((kind) => `${kind}_temp_path ${folder}/${kind};`)
        .join(" ");
      const whole = `daemon off; master_process off; pid ${folder}/pid; events {} http { access_log off; ${temporary} ${own} }`;
      await writeFile(path.join(folder, "nginx.conf"), whole);
      const args = ["-e", `${folder}/error.log`, "-p", folder, "-c", path.join(folder, "nginx.conf")];
      const child = spawn(NGINX, args, { stdio: "ignore" });
      const ended = once(child, "exit");
      try {
        const status = (host: string, path = "/v1/models") =>
          new Promise<number>((resolve, reject) => {
            const asked = request({ port, host: "127.0.0.1", path, headers: { host } }, (response) => {
              response.resume();
              resolve(response.statusCode!);
            });
            asked.on("error", reject).end();
          });
        await until(() =>
          status("localhost").then(
            () => true,
            () => false,
          ),
        );
        const found = [await status(`127.0.0.1:${port}`), await status(NAME)];
        assert.deepEqual(found, [200, i === 0 ? 403 : 200], `${name}: ${found}`);
        const address = `http://127.0.0.1:${port}`;
        const long = await fetch(`${address}/v1/completions`, { method: "POST", body: `{"x": "${"a".repeat(2e6)}"}` });
        assert.deepEqual([long.status, (await long.json()).error.param], [400, "prompt"], name);
        if (name === "example") continue;
        const metrics = ["/metrics", "/metrics/", "//metrics"].map((path) => status("localhost", path));
        assert.deepEqual(await Promise.all(metrics), [403, 403, 403]);
      } finally {
        child.kill("SIGKILL");
        await ended;
        await rm(folder, { recursive: true, force: true });
      }
    }
});

test("systemd accepts the unit", async (context) => {
  if (!existsSync("/usr/bin/systemd-analyze")) return context.skip("there is no systemd-analyze here");
  await run("/usr/bin/systemd-analyze", ["verify", "--man=no", path.join(deploy, "systemd/ternlight.service")]);
});

test("every metric that a file names is one that the server has", async (context) => {
  const app = await served(context, { health: { share: 1 } });
  await app.post("/v1/completions", { model: "demo", prompt: "Once", max_tokens: 2 });
  const known = new Set<string>();
  for (const dialect of ["ternlight", "vllm", "llama"]) {
    const text = await (await app.get(`/metrics?dialect=${dialect}`)).text();
    for (const [, name] of text.matchAll(/^([a-z:_]+)(?:\{| )/gim)) known.add(name!);
  }
  // Nothing has failed here.
  known.add("ternlight_errors_total");
  const unknown: string[] = [];
  let named = 0;
  for (const name of await files()) {
    const text = await read(name);
    for (const [metric] of text.matchAll(
      /\b(?:ternlight_(?!batch_)[a-z_]{4,}|(?:vllm|llamacpp):[a-z_]+|process_[a-z_]+)\b/g,
    )) {
      named++;
      if (!known.has(metric)) unknown.push(`${name}: ${metric}`);
    }
  }
  assert.deepEqual(unknown, []);
  assert.ok(named > 40, String(named));
});

for (const [name, variable] of [
  ["ternlight", "model"],
  ["batches", "queue"],
]) {
  test(`the dashboard ${name} is one that Grafana reads, and its panels do not overlap`, async () => {
    const { panels, templating } = JSON.parse(await read(`grafana/dashboards/${name}.json`));
    assert.equal(new Set(panels.map(({ id }: { id: number }) => id)).size, panels.length);
    const taken = new Set<string>();
    for (const { gridPos, targets, title } of panels) {
      assert.ok(targets.length > 0 && gridPos.x + gridPos.w <= 24, title);
      for (let x = gridPos.x; x < gridPos.x + gridPos.w; x++)
        for (let y = gridPos.y; y < gridPos.y + gridPos.h; y++) {
          assert.ok(!taken.has(`${x} ${y}`), `${title} overlaps at ${x}, ${y}`);
          taken.add(`${x} ${y}`);
        }
    }
    assert.equal(templating.list[0].name, variable);
  });

  test(`promtool reads every expression of the dashboard ${name}`, async (context) => {
    const folder = await mkdtemp(path.join(tmpdir(), "ternlight-rules-"));
    context.after(() => rm(folder, { recursive: true, force: true }));
    const { panels } = JSON.parse(await read(`grafana/dashboards/${name}.json`));
    const all = panels.flatMap(({ targets }: { targets: { expr: string }[] }) => targets.map(({ expr }) => expr));
    const rules = all.map((expr: string, i: number) => ({
      record: `r${i}`,
      expr: expr.replaceAll("$__rate_interval", "5m").replaceAll(`$${variable}`, ".*"),
    }));
    // JSON is YAML.
    await writeFile(path.join(folder, "rules.yml"), JSON.stringify({ groups: [{ name: "panels", rules }] }));
    await run(PROMTOOL, ["check", "rules", path.join(folder, "rules.yml")]);
  });
}

test("flags of the unit and the image are there, and so are paths that are asked for", async (context) => {
  const { stdout: help } = await run(process.execPath, [
    fileURLToPath(new URL("../../dist/cli.js", import.meta.url)),
    "serve",
    "--help",
  ]);
  for (const name of ["Dockerfile", "systemd/ternlight.service"]) {
    for (const [, variable] of (await read(name)).matchAll(/\bTERNLIGHT_([A-Z_]+)=/g)) {
      if (variable === "MODEL") continue;
      const flag = `--${variable!.toLowerCase().replaceAll("_", "-")} `;
      assert.ok(help.includes(flag), `${name}: ${flag}`);
    }
  }
  const server = await serve(context);
  for (const [where] of (await read("Dockerfile")).matchAll(/\/(?:readyz|livez|metrics)\b/g))
    assert.equal((await fetch(server.url + where)).status, 200, where);
});

test("the image's health check asks the server", async (context) => {
  const server = await serve(context);
  const [, list] = /HEALTHCHECK[\s\S]*?CMD (\[.*\])/.exec(await read("Dockerfile"))!;
  const [program, ...args] = JSON.parse(list!) as string[];
  assert.equal(program, "node");
  const check = async (port: string) => {
    const child = spawn(process.execPath, args, { env: { ...process.env, TERNLIGHT_PORT: port } });
    const [code] = await once(child, "exit");
    return code as number;
  };
  assert.equal(await check(new URL(server.url).port), 0);
  server.child.kill("SIGTERM");
  await server.ended;
  assert.equal(await check(new URL(server.url).port), 1);
});
