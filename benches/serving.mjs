/**
 * What the server adds to the engine, on the demo model:
 *
 *   node benches/serving.mjs [--threads 1] [--batch 8] [--tokens 400] [--first 100] [--repeat 9]
 *
 * The same answers by turns: from a model in a process of its own whose pieces are read there, and from `ternlight serve`, streamed and
 * whole. Tokens a second of so many answers at once, and milliseconds to the first piece of one alone; medians, and the server's against
 * the engine's of the same turn. Before each lone answer both rest for as long, since threads that slept take a millisecond to wake.
 * A lone answer is asked for over a bare socket, so that what it takes is the server's and not a client library's; what a request for
 * `/livez` takes is what HTTP costs without an answer. Wants a third core for the client that reads the streams, and an idle machine: it says how busy it was.
 * Writes results/DATE-serving.json. Needs a built package.
 */
import { fork, spawn } from "node:child_process";
import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { Agent, request } from "node:http";
import { connect } from "node:net";
import { cpus, loadavg } from "node:os";
import { fileURLToPath } from "node:url";
import { setTimeout } from "node:timers/promises";
import { parseArgs } from "node:util";
import { median } from "./median.mjs";

const here = fileURLToPath(import.meta.url);
const dist = new URL("../pkg/dist/", import.meta.url);
const REST_MS = 5;
const prompt = "Once upon a time";
const seconds = (since) => (performance.now() - since) / 1000;

/** Tokens a second of answers that begin together. */
async function speed(batch, tokens, answer) {
  const begun = performance.now();
  await Promise.all(Array.from({ length: batch }, (_, seed) => answer(tokens, seed)));
  return (batch * tokens) / seconds(begun);
}

/** The median of milliseconds to the first piece. */
async function first(count, answer) {
  const all = [];
  for (let seed = 0; seed < count; seed++) {
    await setTimeout(REST_MS);
    const begun = performance.now();
    let came = 0;
    await answer(4, seed, () => {
      came ||= performance.now() - begun;
    });
    all.push(came);
  }
  return median(all);
}

/** The engine alone, in its own process. */
async function engine(threads) {
  const { load } = await import(new URL("node.js", dist));
  const model = await load(new URL("../pkg/models/ternlight-demo/", import.meta.url), { threads });
  const answer = async (maxTokens, seed, onPiece = () => {}) => {
    for await (const _ of model.generate(prompt, { maxTokens, seed, temperature: 1, ignoreEos: true })) onPiece();
  };
  process.on("message", async ([what, ...args]) => {
    process.send(await (what === "speed" ? speed(...args, answer) : first(...args, answer)));
  });
  process.send("ready");
}

function asked(ask, stream) {
  return (max_tokens, seed, onPiece = () => {}) =>
    ask("/v1/completions", { model: "ternlight-demo", prompt, max_tokens, seed, temperature: 1, ignore_eos: true, stream }, onPiece);
}

/** Sends requests over connections that stay open. */
function requests(url) {
  const agent = new Agent({ keepAlive: true });
  return (path, body, onPiece) =>
    new Promise((resolve, reject) => {
      const asking = request(`${url}${path}`, { method: body ? "POST" : "GET", agent }, (response) => {
        if (response.statusCode !== 200) reject(new Error(`status ${response.statusCode}`));
        response.on("data", onPiece).on("end", resolve).on("error", reject);
      });
      asking.on("error", reject).end(body && JSON.stringify(body));
    });
}

/**
 * Sends requests over one socket, and reads no more of an answer than where its body begins and ends. A server ends a socket that rests for
 * some seconds: each row of requests gets its own.
 */
function wire(url) {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname).setNoDelay().setEncoding("latin1");
  const ask = (path, body, onPiece) =>
    new Promise((resolve, reject) => {
      const text = body ? JSON.stringify(body) : "";
      const head = `${body ? "POST" : "GET"} ${path} HTTP/1.1\r\nhost: ${hostname}:${port}\r\ncontent-type: application/json\r\n`;
      let found = "";
      const read = (piece) => {
        found += piece;
        if (!found.startsWith("HTTP/1.1 200")) return reject(new Error(found));
        if (!body || found.includes("data: {")) onPiece();
        if (body && !found.endsWith("\r\n0\r\n\r\n")) return;
        socket.off("data", read).off("error", reject);
        resolve();
      };
      socket.on("data", read).once("error", reject);
      socket.write(`${head}content-length: ${text.length}\r\n\r\n${text}`);
    });
  return { ask, end: () => socket.destroy() };
}

async function main() {
  const names = { threads: "1", batch: "8", tokens: "400", first: "100", repeat: "9" };
  const options = Object.fromEntries(Object.entries(names).map(([name, value]) => [name, { type: "string", default: value }]));
  const { values } = parseArgs({ options });
  const settings = Object.fromEntries(Object.entries(values).map(([name, value]) => [name, Number(value)]));
  const { threads, batch, tokens, repeat } = settings;
  const before = loadavg()[0];

  const alone = fork(here, ["--engine", String(threads)]);
  await once(alone, "message");
  const inEngine = async (...message) => {
    alone.send(message);
    return (await once(alone, "message"))[0];
  };
  const flags = ["serve", "--threads", String(threads), "--port", "0", "--json", "--log", "none"];
  const server = spawn(process.execPath, [fileURLToPath(new URL("cli.js", dist)), ...flags], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const { url } = JSON.parse(String((await once(server.stdout, "data"))[0]));
  const found = { engine: [], streamed: [], whole: [] };
  const firsts = { engine: [], streamed: [], http: [] };
  const turns = {
    engine: () => inEngine("speed", batch, tokens),
    streamed: () => speed(batch, tokens, asked(requests(url), true)),
    whole: () => speed(batch, tokens, asked(requests(url), false)),
  };
  try {
    for (let turn = 0; turn <= repeat; turn++) {
      for (const [name, measure] of Object.entries(turns)) {
        const value = await measure();
        // The first turn warms up.
        if (turn > 0) found[name].push(value);
      }
      const engine = await inEngine("first", settings.first);
      const { ask, end } = wire(url);
      const http = (_tokens, _seed, onPiece) => ask("/livez", null, onPiece);
      const row = { engine, streamed: await first(settings.first, asked(ask, true)), http: await first(settings.first, http) };
      end();
      if (turn > 0) for (const [name, value] of Object.entries(row)) firsts[name].push(value);
    }
  } finally {
    alone.kill();
    server.kill("SIGKILL");
  }
  const ratio = (name) => median(found[name].map((value, i) => value / found.engine[i]));
  const shown = (name) => `${median(found[name]).toFixed(0)} tokens/s`;
  for (const name of ["streamed", "whole"])
    console.log(`batch ${batch}, ${name}: ${shown(name)}, engine ${shown("engine")}, ratio ${ratio(name).toFixed(3)}`);
  const more = median(firsts.streamed.map((value, i) => value - firsts.engine[i]));
  const [engineMs, streamedMs, httpMs] = ["engine", "streamed", "http"].map((name) => median(firsts[name]).toFixed(2));
  console.log(`first piece: ${streamedMs} ms, engine ${engineMs} ms, difference ${more.toFixed(2)} ms; HTTP alone ${httpMs} ms`);
  const machine = { cpu: cpus()[0].model, cores: cpus().length, node: process.version, loadBefore: before, loadAfter: loadavg()[0] };
  console.log(`load of the machine before: ${before.toFixed(2)}`);
  const date = new Date().toISOString();
  const file = new URL(`results/${date.slice(0, 10)}-serving.json`, import.meta.url);
  await writeFile(file, `${JSON.stringify({ date, machine, settings, tokensPerSecond: found, firstMs: firsts })}\n`);
}

if (process.argv[2] === "--engine") await engine(Number(process.argv[3]));
else await main();
