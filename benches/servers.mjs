/**
 * Our server beside llama-server, native, with the same file in the same run:
 *
 *   LLAMA_SERVER=/path/to/llama-server node benches/servers.mjs [MODEL.gguf] [--users 1,8] [--seconds 12] [--repeat 3] [--threads N]
 *
 * Both have the same threads, places and context, and a core for the client would help them. Users ask again when they have their answer:
 * prompts of 128 words, answers of 64 tokens, streamed, no two prompts alike. By turns; what the client counts is the same for both.
 * The model is SmolLM2-135M in Q4_1, where none is named. Writes results/DATE-servers.json. Node 22.18 or newer and a built package.
 * About four minutes.
 *
 * llama-server is built from the sources that `pip download --no-binary :all: llama-cpp-python` brings, in ten minutes of one core:
 * cmake -S vendor/llama.cpp -B build -DCMAKE_BUILD_TYPE=Release -DLLAMA_CURL=OFF && cmake --build build --target llama-server
 */
import { execFileSync, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { availableParallelism, cpus, loadavg } from "node:os";
import path from "node:path";
import { setTimeout } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { run } from "../pkg/src/bench/load/run.ts";
import { serverTarget } from "../pkg/src/bench/load/server.ts";
import { median } from "./median.mjs";

const [PROMPT, ANSWER, CONTEXT] = [128, 64, 512];
/** Seconds that a server may take to load its model. */
const PATIENCE = 60;
const percentiles = [50, 95, 99];
const root = fileURLToPath(new URL("../", import.meta.url));

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    users: { type: "string", default: "1,8" },
    seconds: { type: "string", default: "12" },
    repeat: { type: "string", default: "3" },
    threads: { type: "string", default: String(Math.min(availableParallelism(), 8)) },
  },
});
const [duration, repeat, threads] = [values.seconds, values.repeat, values.threads].map(Number);
const users = values.users.split(",").map(Number);
const places = Math.max(...users);
const llama = process.env.LLAMA_SERVER;
if (!llama) throw new Error("LLAMA_SERVER names no llama-server: the top of this file says how one is built");
const model = positionals[0] ?? execFileSync("bash", [path.join(root, "scripts", "smollm2.sh")], { encoding: "utf8" }).trim();

const servers = {
  ternlight: (port) => [
    process.execPath,
    [path.join(root, "pkg", "dist", "cli.js"), "serve", model, "--port", port, "--threads", threads].concat(
      ["--max-sequences", places, "--context", CONTEXT, "--kv-cache-tokens", places * CONTEXT, "--kv", "f16"],
      ["--log", "none"],
    ),
  ],
  "llama-server": (port) => [
    llama,
    ["--model", model, "--port", port, "--threads", threads, "--threads-batch", threads].concat(
      ["--parallel", places, "--ctx-size", places * CONTEXT, "--no-webui", "--log-disable"],
    ),
  ],
};

async function freePort() {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  server.close();
  await once(server, "close");
  return port;
}

/** Starts a server and waits until it has its model. */
async function start(command) {
  const port = await freePort();
  const [program, args] = command(port);
  const child = spawn(program, args.map(String), { stdio: ["ignore", "ignore", "ignore"] });
  const ended = once(child, "exit");
  const host = `http://127.0.0.1:${port}`;
  const begun = performance.now();
  for (;;) {
    if (child.exitCode !== null) throw new Error(`${program} ended with ${child.exitCode}: ${args.join(" ")}`);
    if (await fetch(`${host}/health`).then(({ ok }) => ok, () => false)) break;
    if (performance.now() - begun > 1000 * PATIENCE) throw new Error(`${program} has no model after ${PATIENCE} s`);
    await setTimeout(50);
  }
  const stop = async () => {
    child.kill("SIGKILL");
    await ended;
  };
  return { host, stop, readyMs: performance.now() - begun };
}

const before = loadavg()[0];
const rows = {};
for (let turn = 1; turn <= repeat; turn++) {
  for (const [name, command] of Object.entries(servers)) {
    // One at a time: a server that waits for work may still take some of a core.
    const { host, stop, readyMs } = await start(command);
    try {
      const { target } = await serverTarget({ host, chat: false, stopAtEos: false });
      const plan = { promptTokens: PROMPT, maxTokens: ANSWER, abort: 0, slow: 0 };
      // The first answers of a process are slower than those that follow.
      await run(target, { plan: { ...plan, users: places, duration: 1, seed: 1000 + turn }, size: null, percentiles });
      for (const count of users) {
        const seed = 100 * turn + count;
        const row = await run(target, { plan: { ...plan, users: count, duration, seed }, size: null, percentiles });
        const { refused, failed, unfinished, errors } = row;
        const lost = { refused, failed, unfinished, errors };
        if (refused + failed + unfinished > 0) throw new Error(`${name} lost requests: ${JSON.stringify(lost)}`);
        ((rows[name] ??= {})[count] ??= []).push({ ...row, readyMs });
      }
    } finally {
      await stop();
    }
  }
}

console.log("| | users | requests/s | tokens/s | first token p50, p95, ms | whole p95, ms |\n|---|--:|--:|--:|--:|--:|");
for (const [name, byUsers] of Object.entries(rows))
  for (const [count, runs] of Object.entries(byUsers)) {
    const of = (value) => median(runs.map(value));
    const [served, tokens] = [of((row) => row.servedPerSecond), of((row) => row.tokensPerSecond)];
    const first = [of((row) => row.firstMs.p50), of((row) => row.firstMs.p95)].map((ms) => ms.toFixed(0)).join(", ");
    const whole = of((row) => row.wholeMs.p95).toFixed(0);
    console.log(`| ${[name, count, served.toFixed(2), tokens.toFixed(0), first, whole].join(" | ")} |`);
  }
const { stdout, stderr } = spawnSync(llama, ["--version"], { encoding: "utf8" });
const machine = { cpu: cpus()[0].model, cores: cpus().length, node: process.version, loadBefore: before, loadAfter: loadavg()[0] };
const settings = { seconds: duration, repeat, threads, users, places, context: CONTEXT, promptTokens: PROMPT, maxTokens: ANSWER };
const date = new Date().toISOString();
const file = new URL(`results/${date.slice(0, 10)}-servers.json`, import.meta.url);
const about = { model: path.basename(model), llama: `${stdout}${stderr}`.trim() };
await writeFile(file, `${JSON.stringify({ date, machine, settings, ...about, rows })}\n`);
