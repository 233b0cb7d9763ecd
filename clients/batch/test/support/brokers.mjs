/** Redis and PostgreSQL of Debian's packages, on loopback, each with a folder of its own. */
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync } from "node:fs";
import { chmod, chown, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { mountSmall } from "./disks.mjs";

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

export async function freePort() {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** Megabytes of a disk that is soon full. */
const SMALL = { redis: 32, postgres: 192, database: 192 };

/**
 * A broker, "database" is PostgreSQL, too; with `url`, `kill()` (as a crash), `start()` and `end()`.
 *
 * @param secrets where it listens with TLS alone, and asks for a password: `{cert, key, password}`
 * @param small whether its files lie on a small disk, `disk`, if this machine allows one
 */
export async function broker(kind, secrets = null, small = false) {
  const folder = await mkdtemp(path.join(tmpdir(), `ternlight-${kind}-`));
  const unmount = small ? mountSmall(folder, SMALL[kind]) : null;
  const port = await freePort();
  if (secrets) {
    await writeFile(path.join(folder, "cert.pem"), secrets.cert);
    await writeFile(path.join(folder, "key.pem"), secrets.key, { mode: 0o600 });
  }
  const made = kind === "redis" ? redis(folder, port, secrets) : await postgres(folder, port, secrets);
  let child = null;
  const self = {
    url: made.url,
    disk: unmount ? folder : null,
    /** Whether it has not ended by itself. */
    lives: () => child.exitCode === null && child.signalCode === null,
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
    /** Redis alone: all that it holds. */
    keys: () => made.keys(),
    async end() {
      if (child && self.lives()) await self.kill();
      unmount?.();
      await rm(folder, { recursive: true, force: true });
    },
  };
  await self.start();
  return self;
}

function redis(folder, port, secrets) {
  const at = (name) => path.join(folder, name);
  const known = secrets ? ["--tls", "--cacert", at("cert.pem"), "--pass", secrets.password, "--no-auth-warning"] : [];
  const cli = async (...args) => (await run("redis-cli", ["-p", String(port), ...known, ...args])).stdout.trim();
  const tls = secrets
    ? [
        "--tls-port",
        port,
        "--tls-cert-file",
        at("cert.pem"),
        "--tls-key-file",
        at("key.pem"),
        "--tls-auth-clients",
        "no",
      ]
    : [];
  const flags = [
    ...tls,
    ...(secrets ? ["--requirepass", secrets.password] : []),
    "--port",
    secrets ? 0 : port,
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
    url: secrets ? `rediss://:${secrets.password}@127.0.0.1:${port}` : `redis://127.0.0.1:${port}`,
    spawn: () => spawn("redis-server", [...flags, "--maxmemory-policy", "noeviction"].map(String), { stdio: "ignore" }),
    answers: () =>
      cli("ping").then(
        (text) => text === "PONG",
        () => false,
      ),
    keys: async () => (await cli("keys", "*")).split("\n").filter(Boolean),
    memory: async () => Number(/used_memory:(\d+)/.exec(await cli("info", "memory"))[1]),
  };
}

async function postgres(folder, port, secrets) {
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
    if (secrets) for (const name of ["cert.pem", "key.pem"]) await chown(path.join(folder, name), uid, gid);
    owner = { uid, gid };
  }
  await run(
    `${bin}/initdb`,
    ["-D", data, "-U", "ternlight", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C"],
    owner,
  );
  const tls = ["ssl=on", `ssl_cert_file=${folder}/cert.pem`, `ssl_key_file=${folder}/key.pem`];
  if (secrets) {
    await writeFile(path.join(folder, "hba"), "hostssl all all all scram-sha-256\n");
    const hba = `hba_file=${folder}/hba`;
    await setPassword(bin, data, owner, secrets.password);
    tls.push(hba);
  }
  const flags = [
    ...(secrets ? tls.flatMap((setting) => ["-c", setting]) : []),
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
    ...["min_wal_size=32MB", "max_wal_size=64MB"].flatMap((setting) => ["-c", setting]),
  ];
  const psql = (sql) =>
    run("psql", ["-h", "127.0.0.1", "-p", String(port), "-U", "ternlight", "-d", "postgres", "-Atc", sql], {
      env: { ...process.env, ...(secrets ? { PGPASSWORD: secrets.password } : {}) },
    });
  return {
    url: secrets
      ? `postgres://ternlight:${secrets.password}@127.0.0.1:${port}/postgres?sslmode=verify-full`
      : `postgres://ternlight@127.0.0.1:${port}/postgres`,
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

/** While nobody else can reach it. */
async function setPassword(bin, data, owner, password) {
  const child = spawn(`${bin}/postgres`, ["--single", "-D", data, "postgres"], {
    ...owner,
    stdio: ["pipe", "ignore", "ignore"],
  });
  child.stdin.end(`ALTER USER ternlight PASSWORD '${password}'\n`);
  await once(child, "exit");
}
