/**
 * The image of deploy/Dockerfile: built and run by Docker where its daemon is at hand. Otherwise its steps are carried out in a chroot that
 * debootstrap has made, with this machine's Node 24 and npm in place of the base image's; .cache/chroot keeps it.
 */

import assert from "node:assert/strict";
import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { chmod, copyFile, cp, mkdir, mkdtemp, readFile, realpath, rename, rm, stat, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { setTimeout } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { build, command, type Image, inside, stepsOf } from "./support/dockerfile.ts";

const run = promisify(execFile);
const root = fileURLToPath(new URL("../../../", import.meta.url));
const dockerfile = path.join(root, "deploy", "Dockerfile");
const model = path.join(root, "tests", "golden", "gguf", "llama_bitlinear.TQ2_0.gguf");
const node24 = path.join(root, "pkg", "test", "hosts", "node_modules", "node24", "bin", "node");
/** Milliseconds for a build and a start. */
const PATIENCE = 600_000;

/** A container that serves. */
interface Container {
  port: number;
  /** The exit status of the image's health check. */
  healthy(): Promise<number>;
  /** The user that the server runs as. */
  uid(): Promise<string>;
  /** Ends it as Docker would; answers with its exit status. */
  stop(): Promise<number>;
}

/** What the build may see: the packed package, a README and a model, as Dockerfile.dockerignore lets through. */
async function contextFolder(test: TestContext): Promise<string> {
  const folder = await mkdtemp(path.join(tmpdir(), "ternlight-context-"));
  test.after(() => rm(folder, { recursive: true, force: true }));
  await run("npm", ["pack", "--pack-destination", folder], { cwd: path.join(root, "pkg") });
  await copyFile(path.join(root, "README.md"), path.join(folder, "README.md"));
  await copyFile(model, path.join(folder, "model.gguf"));
  return folder;
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as { port: number };
  server.close();
  await once(server, "close");
  return port;
}

const exitStatus = async (child: ChildProcess) => ((await once(child, "exit")) as [number])[0];

/** Debian with Node and its user, as `node:24-bookworm-slim` has them. */
async function base(): Promise<string> {
  const kept = path.join(root, ".cache", "chroot", "node-24-bookworm");
  if (existsSync(kept)) return kept;
  const part = `${kept}.part`;
  await rm(part, { recursive: true, force: true });
  await mkdir(part, { recursive: true });
  await run("debootstrap", ["--variant=minbase", "bookworm", part], { maxBuffer: 1 << 26 });
  await copyFile(await realpath(node24), `${part}/usr/local/bin/node`);
  await chmod(`${part}/usr/local/bin/node`, 0o755);
  const { stdout } = await run("npm", ["root", "--global"]);
  await cp(path.join(stdout.trim(), "npm"), `${part}/usr/local/lib/node_modules/npm`, { recursive: true });
  await writeFile(
    `${part}/usr/local/bin/npm`,
    '#!/bin/sh\nexec node /usr/local/lib/node_modules/npm/bin/npm-cli.js "$@"\n',
  );
  await chmod(`${part}/usr/local/bin/npm`, 0o755);
  await run("chroot", [part, "useradd", "--uid", "1000", "--user-group", "--create-home", "node"]);
  await rename(part, kept);
  return kept;
}

async function inChroot(test: TestContext): Promise<Container> {
  const stages = await mkdtemp(path.join(tmpdir(), "ternlight-stages-"));
  test.after(() => rm(stages, { recursive: true, force: true }));
  // The server's user must get through it.
  await chmod(stages, 0o755);
  let count = 0;
  const from = async (name: string) => {
    assert.equal(name, "node:24-bookworm-slim");
    const stage = path.join(stages, String(count++));
    await run("cp", ["--archive", "--reflink=auto", await base(), stage]);
    return stage;
  };
  const context = await contextFolder(test);
  const image = await build(stepsOf(await readFile(dockerfile, "utf8")), {
    context,
    args: { MODEL: "model.gguf" },
    from,
  });
  return started(test, image);
}

async function started(test: TestContext, image: Image): Promise<Container> {
  const port = await freePort();
  const env = { TERNLIGHT_PORT: String(port), TERNLIGHT_HOST: "127.0.0.1", TERNLIGHT_LOG: "none" };
  const [program, ...args] = command(image, [...image.entrypoint, "model=/models/model.gguf"], env);
  const child = spawn(program!, args, { stdio: ["ignore", "ignore", "inherit"] });
  const ended = exitStatus(child);
  test.after(() => child.kill("SIGKILL"));
  const { mode, uid } = await stat(`${image.root}/var/cache/ternlight`);
  assert.deepEqual([uid, mode & 0o200], [1000, 0o200]);
  return {
    port,
    healthy: () =>
      inside(image, image.healthcheck, env).then(
        () => 0,
        ({ code }) => code as number,
      ),
    uid: async () => /^Uid:\s+(\d+)/m.exec(await readFile(`/proc/${child.pid}/status`, "utf8"))![1]!,
    async stop() {
      child.kill(image.stopSignal as NodeJS.Signals);
      return ended;
    },
  };
}

async function inDocker(test: TestContext): Promise<Container> {
  const tag = `ternlight-test-${process.pid}`;
  const context = await contextFolder(test);
  const docker = async (...args: string[]) => (await run("docker", args, { maxBuffer: 1 << 26 })).stdout.trim();
  await docker("build", "--file", dockerfile, "--build-arg", "MODEL=model.gguf", "--tag", tag, context);
  test.after(() => run("docker", ["rmi", "--force", tag]));
  const port = await freePort();
  const id = await docker("run", "--detach", "--publish", `127.0.0.1:${port}:8000`, tag, "model=/models/model.gguf");
  test.after(() => run("docker", ["rm", "--force", id]));
  const [, ...healthcheck] = JSON.parse(await docker("inspect", "--format", "{{json .Config.Healthcheck.Test}}", id));
  return {
    port,
    healthy: () =>
      run("docker", ["exec", id, ...healthcheck]).then(
        () => 0,
        ({ code }) => code as number,
      ),
    uid: () => docker("exec", id, "id", "--user"),
    async stop() {
      await docker("stop", id);
      return Number(await docker("inspect", "--format", "{{.State.ExitCode}}", id));
    },
  };
}

/** How the image can be made here; or why it cannot. */
async function maker(): Promise<((test: TestContext) => Promise<Container>) | string> {
  const daemon = await run("docker", ["info"]).then(
    () => true,
    () => false,
  );
  if (daemon) return inDocker;
  if (process.getuid?.() !== 0) return "there is no Docker daemon, and only root may make a chroot";
  if (!existsSync("/usr/sbin/debootstrap")) return "there is neither a Docker daemon nor debootstrap";
  return inChroot;
}

test("the steps of the Dockerfile give a server that answers, is no root, is healthy and stops", {
  timeout: PATIENCE,
}, async (test) => {
  const make = await maker();
  if (typeof make === "string") return test.skip(make);
  const container = await make(test);
  const ask = (where: string, init?: RequestInit) => fetch(`http://127.0.0.1:${container.port}${where}`, init);
  while (
    !(await ask("/readyz").then(
      ({ ok }) => ok,
      () => false,
    ))
  )
    await setTimeout(100);
  assert.equal(await container.uid(), "1000");
  assert.equal(await container.healthy(), 0);
  const body = JSON.stringify({ model: "model", prompt: "Once upon a time", max_tokens: 4, ignore_eos: true });
  const answer = await ask("/v1/completions", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body,
  });
  assert.equal((await answer.json()).usage.completion_tokens, 4);
  assert.equal(await container.stop(), 0);
});
