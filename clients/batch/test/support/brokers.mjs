/** Redis and PostgreSQL of Debian's packages, on loopback, each with a folder of its own. */
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync } from "node:fs";
import { chmod, chown, mkdir, mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);
const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Why a broker cannot be started here; null where it can. */
export function missing(kind) {
  if (kind === "redis")
    return existsSync("/usr/bin/redis-server") ? null : "redis-server (Debian's package redis-server)";
  return postgresBin() ? null : "postgres (Debian's package postgresql)";
}

function postgresBin() {
  const root = "/usr/lib/postgresql";
  const versions = existsSync(root) ? readdirSync(root).sort((a, b) => b - a) : [];
  return versions.map((version) => `${root}/${version}/bin`).find((bin) => existsSync(`${bin}/postgres`)) ?? null;
}

async function freePort() {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** A broker with `url`, `kill()` (as a crash), `start()` and `end()`. */
export async function broker(kind) {
  const folder = await mkdtemp(path.join(tmpdir(), `ternlight-${kind}-`));
  const port = await freePort();
  const made = kind === "redis" ? redis(folder, port) : await postgres(folder, port);
  let child = null;
  const self = {
    url: made.url,
    async start() {
      child = made.spawn();
      for (let tries = 0; !(await made.answers()); tries++) {
        if (tries > 200) throw new Error(`${kind} does not answer on ${port}`);
        await wait(50);
        // What a crash has left may refuse the first tries.
        if (child.exitCode !== null) child = made.spawn();
      }
    },
    async kill() {
      const ended = once(child, "exit");
      // PostgreSQL has children, which end when their parent is gone.
      child.kill("SIGKILL");
      await ended;
      await made.gone?.();
    },
    /** For a while nothing comes and nothing goes. */
    pause: () => child.kill("SIGSTOP"),
    resume: () => child.kill("SIGCONT"),
    memory: () => made.memory(),
    async end() {
      if (child?.exitCode === null && child.signalCode === null) await self.kill();
      await rm(folder, { recursive: true, force: true });
    },
  };
  await self.start();
  return self;
}

function redis(folder, port) {
  const cli = async (...args) => (await run("redis-cli", ["-p", String(port), ...args])).stdout.trim();
  const flags = [
    "--port",
    port,
    "--bind",
    "127.0.0.1",
    "--dir",
    folder,
    "--appendonly",
    "yes",
    "--appendfsync",
    "always",
  ];
  return {
    url: `redis://127.0.0.1:${port}`,
    spawn: () => spawn("redis-server", [...flags, "--maxmemory-policy", "noeviction"].map(String), { stdio: "ignore" }),
    answers: () =>
      cli("ping").then(
        (text) => text === "PONG",
        () => false,
      ),
    memory: async () => Number(/used_memory:(\d+)/.exec(await cli("info", "memory"))[1]),
  };
}

async function postgres(folder, port) {
  const bin = postgresBin();
  const data = path.join(folder, "data");
  await mkdir(data);
  const root = process.getuid() === 0;
  let owner = {};
  if (root) {
    // It does not run as root; Debian's package makes it a user.
    const [uid, gid] = await Promise.all(
      ["-u", "-g"].map(async (flag) => Number((await run("id", [flag, "postgres"])).stdout)),
    );
    await chmod(folder, 0o755);
    await chown(data, uid, gid);
    owner = { uid, gid };
  }
  await run(
    `${bin}/initdb`,
    ["-D", data, "-U", "ternlight", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C"],
    owner,
  );
  const flags = [
    "-D",
    data,
    "-p",
    port,
    "-h",
    "127.0.0.1",
    "-c",
    "unix_socket_directories=",
    "-c",
    "max_connections=200",
  ];
  const psql = (sql) =>
    run("psql", ["-h", "127.0.0.1", "-p", String(port), "-U", "ternlight", "-d", "postgres", "-Atc", sql]);
  return {
    url: `postgres://ternlight@127.0.0.1:${port}/postgres`,
    spawn: () => spawn(`${bin}/postgres`, flags.map(String), { stdio: "ignore", ...owner }),
    answers: () =>
      psql("select 1").then(
        () => true,
        () => false,
      ),
    // Its lock on the folder outlives it until its children have seen that it is gone.
    gone: () => wait(300),
    memory: async () => Number((await psql("select pg_database_size('postgres')")).stdout),
  };
}
