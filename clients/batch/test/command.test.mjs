/** The commands around a queue, with the demo model: the bytes are those of one machine. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
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
    assert.match(given.err, /warning: no worker is attached to the queue of job/);
    assert.equal(total, 90);
    const jobs = async () => JSON.parse((await done("status", ...place, "--json")).out).jobs;
    assert.deepEqual(
      (await jobs()).map(({ id, state, done, queue }) => [id, state, done, queue.waiting]),
      [[job, "running", 0, 23]],
    );
    assert.match((await done("cancel", job, ...place)).out, /is cancelled/);
    const detached = await start(at("in.jsonl"), ...MODEL, ...place, "--chunk", "4", "--detach").ended;
    assert.equal(detached.code, 1);
    assert.ok(detached.err.includes(`the job ${job} was cancelled; retry lets it go on`), detached.err);
    assert.equal((await jobs())[0].queue.waiting, 0);
    assert.deepEqual(JSON.parse((await done("retry", job, ...place, "--json")).out), { job, chunks: 23 });

    const worker = () => {
      const made = start("worker", ...place, ...MODEL, "--lease", "1");
      children.push(made.child);
      return made;
    };
    // One with another context is near, and takes nothing.
    const near = start("worker", ...place, ...MODEL, "--context", "64");
    children.push(near.child);
    while (!existsSync(at("jobs/.workers"))) await new Promise((resolve) => setTimeout(resolve, 20));
    const warned = /warning: no worker .* of ternlight-demo, differs in context length \(64, the job has \d+\)\n/;
    assert.match((await done("status", ...place)).err, warned);
    near.child.kill("SIGTERM");
    await near.ended;
    const [first, second] = [worker(), worker()];
    const answers = at(`jobs/${job}/answers/000000`);
    while (!existsSync(answers) || readdirSync(answers).length < 4)
      await new Promise((resolve) => setTimeout(resolve, 5));
    first.child.kill("SIGKILL");
    await writeFile(at("out.jsonl"), "what was there\n");
    const collected = await done(
      at("in.jsonl"),
      ...MODEL,
      ...place,
      "--chunk",
      "4",
      "--priority",
      "3",
      "--out",
      at("out.jsonl"),
      "--force",
      "--json",
    );
    assert.match(collected.err, /warning: the job was given before, without a priority, and keeps that/);
    assert.deepEqual(JSON.parse(collected.out), { job, lines: 90, failed: 1, total: 90, out: at("out.jsonl") });
    for (const name of [".jsonl", ".errors.jsonl"]) {
      assert.deepEqual(readFileSync(at(`out${name}`)), readFileSync(at(`alone${name}`)), name);
    }
    // As the workers have the model, without a file of it: the job is the same one, and is done.
    const attached = ["--model", "ternlight-demo=/none.gguf", "--attached", ...place, "--chunk", "4", "--json"];
    const again = JSON.parse((await done(at("in.jsonl"), ...attached, "--out", at("again.jsonl"))).out);
    assert.equal(again.job, job);
    assert.deepEqual(readFileSync(at("again.jsonl")), readFileSync(at("alone.jsonl")));
    const refused = async (model, ...more) => {
      const { code, err } = await start(at("in.jsonl"), ...attached, "--model", model, "--detach", ...more).ended;
      assert.notEqual(code, 0);
      return err;
    };
    assert.match(await refused("other"), /no worker of other is attached; there are some of ternlight-demo/);
    assert.match(await refused("ternlight-demo", "--context", "64"), /--context does not go with --attached/);
    const signs = () => readdirSync(at("jobs/.workers")).filter((name) => name.endsWith(".json")).length;
    const before = signs();
    const other = start("worker", ...place, ...MODEL, "--context", "64");
    children.push(other.child);
    while (signs() === before) await new Promise((resolve) => setTimeout(resolve, 20));
    assert.match(await refused("ternlight-demo"), /workers of 2 kinds .*, which differ in context length;/);
    other.child.kill("SIGTERM");
    await other.ended;
    second.child.kill("SIGTERM");
    assert.equal((await second.ended).code, 0);
    assert.match((await done("status", job, ...place)).out, new RegExp(`${job}  done`));
    assert.match((await done("cancel", job, ...place)).out, /has all of its answers: nothing is cancelled/);
    assert.deepEqual(JSON.parse((await done("retry", job, ...place, "--json")).out), { job, chunks: 0 });
    assert.deepEqual(JSON.parse((await done("drain", ...place, "--json")).out), { queues: 1, drained: true });
    assert.deepEqual(JSON.parse((await done("drain", ...place, "--off", "--json")).out), { queues: 1, drained: false });
  },
);

test(
  "a queue in PostgreSQL does without a folder",
  missing("postgres") ? { skip: `${missing("postgres")} is not installed` } : {},
  async (context) => {
    const dir = await mkdtemp(path.join(tmpdir(), "ternlight-queue-"));
    const queue = await broker("database");
    const place = ["--queue", queue.url];
    const worker = start("worker", ...place, ...MODEL, "--lease", "1", "--metrics-listen", "0", "--json");
    context.after(async () => {
      worker.child.kill("SIGKILL");
      await queue.end();
      await rm(dir, { recursive: true, force: true });
    });
    const at = (name) => path.join(dir, name);
    // PostgreSQL's texts hold no NUL, and a line that is no JSON may.
    const odd = ["\0", "!", `{"prompt": "\0"}`];
    await writeFile(at("in.jsonl"), [...odd, ...Array.from({ length: 20 }, (_, i) => line(i))].join("\n"));
    await done(at("in.jsonl"), ...MODEL, "--out", at("alone.jsonl"));
    await done(at("in.jsonl"), ...MODEL, ...place, "--chunk", "4", "--out", at("out.jsonl"));
    for (const name of [".jsonl", ".errors.jsonl"]) {
      assert.deepEqual(readFileSync(at(`out${name}`)), readFileSync(at(`alone${name}`)), name);
    }
    assert.match((await done("status", ...place)).out, /done .* 6 of 6/);
    assert.match((await done("status", ...place, "--metrics")).out, /^ternlight_batch_jobs\{state="done"\} 1$/m);
    const { metrics, models } = JSON.parse(worker.said.out);
    const text = await (await fetch(metrics)).text();
    assert.match(text, /^ternlight_batch_lines_total\{model="ternlight-demo"\} 23$/m);
    assert.ok(text.includes(`ternlight_batch_queue_chunks{queue="${models[0].identity}",state="waiting"} 0\n`), text);
    assert.equal((await fetch(new URL("/", metrics))).status, 404);
    // In a variable the URL is in no list of processes.
    const exporter = spawn(process.execPath, [cli, "batch", "status", "--metrics-listen", "localhost:0"], {
      env: { ...process.env, TERNLIGHT_QUEUE: queue.url },
      stdio: ["ignore", "ignore", "pipe"],
    });
    context.after(() => exporter.kill("SIGKILL"));
    const [said] = await once(exporter.stderr, "data");
    const [url] = /http:\S+/.exec(said);
    assert.match(await (await fetch(url)).text(), /^ternlight_batch_jobs\{state="done"\} 1$/m);
    exporter.kill("SIGTERM");
    assert.deepEqual(await once(exporter, "exit"), [0, null]);
  },
);

test("wrong calls are told before anything is loaded, and passwords by nobody", async () => {
  const wrong = [
    [
      ["x", ...MODEL, "--queue", "redis://localhost"],
      "--folder is missing, which only a queue in PostgreSQL does without",
    ],
    [["x", ...MODEL, "--out", "y", "--folder", "z"], "--folder belongs to --queue"],
    [
      ["x", ...MODEL, "--queue", "redis://localhost", "--folder", "z", "--workers", "2"],
      "--workers does not go with --queue",
    ],
    [["worker", "--queue", "redis://localhost", "--folder", "z"], "--model is missing"],
    [["status"], "--queue is missing"],
    [
      ["status", "--queue", "kafka://u:secret@x", "--folder", "z"],
      "--queue must be redis://…, rediss://… or postgres://…",
    ],
    [
      ["status", "--queue", "redis://localhost", "--folder", "z", "--metrics-listen", "x:y"],
      "--metrics-listen must be [HOST:]PORT",
    ],
    [
      ["x", ...MODEL, "--out", "y", "--recommend", "--max-sequences", "2"],
      "--max-sequences does not go with --recommend",
    ],
  ];
  for (const [args, message] of wrong) {
    const { code, err } = await start(...args).ended;
    assert.equal(code, 2, err);
    assert.ok(err.includes(message), err);
    assert.doesNotMatch(err, /secret/);
  }
  const { code, err } = await start("worker", "--queue", "redis://u:secret@127.0.0.1:1", "--folder", tmpdir(), ...MODEL)
    .ended;
  assert.equal(code, 1);
  assert.match(err, /redis:\/\/127.0.0.1:1 is no queue that answers/);
  assert.doesNotMatch(err, /secret/);
});

test(
  "what a job needs is tried before its model is loaded",
  why ? { skip: `${why} is not installed` } : {},
  async (context) => {
    const dir = await mkdtemp(path.join(tmpdir(), "ternlight-queue-"));
    const queue = await broker("redis");
    context.after(async () => {
      await queue.end();
      await rm(dir, { recursive: true, force: true });
    });
    const at = (name) => path.join(dir, name);
    await writeFile(at("in.jsonl"), line(0));
    await writeFile(at("file"), "");
    await mkdir(at("taken"));
    // A model that is not there would be told, too, by whoever came to load it.
    const model = ["--model", at("absent.gguf")];
    const away = "redis://127.0.0.1:1";
    const wrong = [
      ["NotFound", at("nothere.jsonl"), "--queue", queue.url, "--folder", at("jobs"), "--out", at("out.jsonl")],
      ["Network", at("in.jsonl"), "--queue", away, "--folder", at("jobs"), "--out", at("out.jsonl")],
      ["Unwritable", at("in.jsonl"), "--queue", queue.url, "--folder", at("jobs"), "--out", at("no/out.jsonl")],
      ["Unwritable", at("in.jsonl"), "--queue", queue.url, "--folder", at("jobs"), "--out", at("taken")],
      ["Unwritable", at("in.jsonl"), "--queue", queue.url, "--folder", at("file/jobs"), "--out", at("out.jsonl")],
    ];
    const found = await Promise.all(wrong.map(([, ...args]) => start(...args, ...model, "--json").ended));
    for (const [i, { code, out, err }] of found.entries()) {
      assert.equal(code, 1, err);
      assert.equal(JSON.parse(out).error.code, wrong[i][0], out);
    }
    assert.deepEqual(readdirSync(dir).sort(), ["file", "in.jsonl", "jobs", "taken"]);
    assert.deepEqual(readdirSync(at("jobs")), []);
    assert.deepEqual(await queue.keys(), []);
  },
);

const noPostgres = missing("database");

test(
  "a call that is refused for its OUT has submitted nothing",
  noPostgres ? { skip: `${noPostgres} is not installed` } : {},
  async (context) => {
    const dir = await mkdtemp(path.join(tmpdir(), "ternlight-queue-"));
    const queue = await broker("database");
    context.after(async () => {
      await queue.end();
      await rm(dir, { recursive: true, force: true });
    });
    const at = (name) => path.join(dir, name);
    await writeFile(at("in.jsonl"), `${line(0)}\n`);
    await writeFile(at("mine.jsonl"), "mine\n");
    for (const [out, expected] of [
      ["mine.jsonl", /Exists: .*mine\.jsonl exists, and is not what the job gives; --force replaces it/],
      ["none/out.jsonl", /none\/out\.jsonl.* ENOENT/],
    ]) {
      const { code, err } = await start(at("in.jsonl"), ...MODEL, "--queue", queue.url, "--out", at(out)).ended;
      assert.equal(code, 1);
      assert.match(err, expected);
    }
    assert.deepEqual(JSON.parse((await done("status", "--queue", queue.url, "--json")).out), { jobs: [] });
  },
);
