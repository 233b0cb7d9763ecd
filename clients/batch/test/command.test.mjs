/** The commands around a queue, with the demo model: the bytes are those of one machine. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { broker, missing } from "./support/brokers.mjs";

const cli = fileURLToPath(new URL("../../../pkg/dist/cli.js", import.meta.url));
const MODEL = ["--model", "ternlight-demo", "--threads", "1"];
const why = missing("redis");

function start(...args) {
  const child = spawn(process.execPath, [cli, "batch", ...args], { stdio: ["ignore", "pipe", "pipe"] });
  const said = { out: "", err: "" };
  child.stdout.on("data", (text) => (said.out += text));
  child.stderr.on("data", (text) => (said.err += text));
  return { child, said, ended: once(child, "close").then(([code, signal]) => ({ code, signal, ...said })) };
}

async function done(...args) {
  const found = await start(...args).ended;
  assert.equal(found.code, 0, `${args.join(" ")}\n${found.err}`);
  return found;
}

const line = (i) =>
  i === 30
    ? "not json"
    : JSON.stringify({
        custom_id: `${i}`,
        method: "POST",
        url: "/v1/completions",
        body: { prompt: `A ${i}`, max_tokens: 12 },
      });

test(
  "workers that die write what one machine writes",
  why ? { skip: `${why} is not installed` } : {},
  async (context) => {
    const dir = await mkdtemp(path.join(tmpdir(), "ternlight-queue-"));
    const queue = await broker("redis");
    const children = [];
    context.after(async () => {
      for (const child of children) child.kill("SIGKILL");
      await queue.end();
      await rm(dir, { recursive: true, force: true });
    });
    const at = (name) => path.join(dir, name);
    await writeFile(at("in.jsonl"), Array.from({ length: 90 }, (_, i) => `${line(i)}\n`).join(""));
    await done(at("in.jsonl"), ...MODEL, "--out", at("alone.jsonl"));

    const place = ["--queue", queue.url, "--folder", at("jobs")];
    const given = await done(at("in.jsonl"), ...MODEL, ...place, "--chunk", "4", "--detach", "--json");
    const { job, total } = JSON.parse(given.out);
    assert.equal(total, 90);
    const jobs = async () => JSON.parse((await done("status", ...place, "--json")).out).jobs;
    assert.deepEqual(
      (await jobs()).map(({ id, state, done, queue }) => [id, state, done, queue.waiting]),
      [[job, "running", 0, 23]],
    );

    const worker = () => {
      const made = start("worker", ...place, ...MODEL, "--lease", "1");
      children.push(made.child);
      return made;
    };
    const [first, second] = [worker(), worker()];
    const answers = at(`jobs/${job}/answers/000000`);
    while (!existsSync(answers) || readdirSync(answers).length < 4)
      await new Promise((resolve) => setTimeout(resolve, 5));
    first.child.kill("SIGKILL");
    const collected = await done(
      at("in.jsonl"),
      ...MODEL,
      ...place,
      "--chunk",
      "4",
      "--out",
      at("out.jsonl"),
      "--json",
    );
    assert.deepEqual(JSON.parse(collected.out), { job, lines: 90, failed: 1, total: 90, out: at("out.jsonl") });
    for (const name of [".jsonl", ".errors.jsonl"]) {
      assert.deepEqual(readFileSync(at(`out${name}`)), readFileSync(at(`alone${name}`)), name);
    }
    second.child.kill("SIGTERM");
    assert.equal((await second.ended).code, 0);
    assert.match((await done("status", job, ...place)).out, new RegExp(`${job}  done`));
    assert.match((await done("cancel", job, ...place)).out, /is cancelled/);
    assert.deepEqual(JSON.parse((await done("retry", job, ...place, "--json")).out), { job, chunks: 0 });
    assert.deepEqual(JSON.parse((await done("drain", ...place, "--json")).out), { queues: 1, drained: true });
    assert.deepEqual(JSON.parse((await done("drain", ...place, "--off", "--json")).out), { queues: 1, drained: false });
  },
);

test("wrong calls are told before anything is loaded, and passwords by nobody", async () => {
  const wrong = [
    [["x", ...MODEL, "--queue", "redis://localhost"], "--folder is missing"],
    [["x", ...MODEL, "--out", "y", "--folder", "z"], "--folder belongs to --queue"],
    [
      ["x", ...MODEL, "--queue", "redis://localhost", "--folder", "z", "--workers", "2"],
      "--workers does not go with --queue",
    ],
    [["worker", "--queue", "redis://localhost", "--folder", "z"], "--model is missing"],
    [["status"], "--queue is missing"],
  ];
  for (const [args, message] of wrong) {
    const { code, err } = await start(...args).ended;
    assert.equal(code, 2, err);
    assert.ok(err.includes(message), err);
  }
  const { code, err } = await start("worker", "--queue", "redis://u:secret@127.0.0.1:1", "--folder", tmpdir(), ...MODEL)
    .ended;
  assert.equal(code, 1);
  assert.match(err, /redis:\/\/127.0.0.1:1 is no queue that answers/);
  assert.doesNotMatch(err, /secret/);
});
