/** The files of deploy/: each is read by the program that it is for, and names only metrics that there are. */

import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { served } from "../server/support/app.ts";
import { serve } from "../server/support/command.ts";

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
  await run(PROMTOOL, ["check", "config", path.join(prometheus, "prometheus.yml")]);
});

test("nginx accepts its file", async (context) => {
  const folder = await mkdtemp(path.join(tmpdir(), "ternlight-nginx-"));
  context.after(() => rm(folder, { recursive: true, force: true }));
  const whole = `pid ${folder}/pid; events {} http { access_log off; include ${deploy}nginx/ternlight.conf; }`;
  await writeFile(path.join(folder, "nginx.conf"), whole);
  await run(NGINX, ["-t", "-q", "-e", "stderr", "-p", folder, "-c", path.join(folder, "nginx.conf")]);
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
    for (const [metric] of text.matchAll(/\b(?:ternlight_[a-z_]{4,}|(?:vllm|llamacpp):[a-z_]+|process_[a-z_]+)\b/g)) {
      named++;
      if (!known.has(metric)) unknown.push(`${name}: ${metric}`);
    }
  }
  assert.deepEqual(unknown, []);
  assert.ok(named > 40, String(named));
});

test("the dashboard is one that Grafana reads, and its panels do not overlap", async () => {
  const { panels, templating } = JSON.parse(await read("grafana/dashboards/ternlight.json"));
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
  assert.equal(templating.list[0].name, "model");
});

test("flags and paths that the files name are there", async (context) => {
  const { stdout: help } = await run(process.execPath, [
    fileURLToPath(new URL("../../dist/cli.js", import.meta.url)),
    "serve",
    "--help",
  ]);
  for (const name of ["compose.yaml", "kubernetes/ternlight.yaml"]) {
    const text = await read(name);
    const lists = [...text.matchAll(/^\s+(?:command|args): (\["(?:model=)[^\]]*\])/gm)];
    const flags = lists.flatMap(([, list]) => JSON.parse(list!) as string[]).filter((flag) => flag.startsWith("--"));
    assert.ok(flags.length >= 2, name);
    for (const flag of flags) assert.ok(help.includes(`${flag} `), `${name}: ${flag}`);
  }
  for (const name of ["Dockerfile", "systemd/ternlight.service"]) {
    for (const [, variable] of (await read(name)).matchAll(/\bTERNLIGHT_([A-Z_]+)=/g)) {
      if (variable === "MODEL") continue;
      const flag = `--${variable!.toLowerCase().replaceAll("_", "-")} `;
      assert.ok(help.includes(flag), `${name}: ${flag}`);
    }
  }
  const server = await serve(context);
  for (const name of ["kubernetes/ternlight.yaml", "Dockerfile"])
    for (const [where] of (await read(name)).matchAll(/\/(?:readyz|livez|metrics)\b/g))
      assert.equal((await fetch(server.url + where)).status, 200, `${name}: ${where}`);
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
