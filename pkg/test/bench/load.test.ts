import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { picture } from "../../src/bench/load/picture.ts";
import { arrivals, type LoadPlan, request, words } from "../../src/bench/load/plan.ts";
import { csv, kneeOf, type LoadReport, type LoadRow } from "../../src/bench/load/report.ts";
import { type Clock, run, type Target } from "../../src/bench/load/run.ts";
import { events, serverTarget } from "../../src/bench/load/server.ts";
import { percentile } from "../../src/bench/stats.ts";
import { DEMO, done, failure, json, ternlight } from "../cli/support/ternlight.ts";
import { serve } from "../server/support/command.ts";

const plan: LoadPlan = { duration: 2, promptTokens: 16, maxTokens: 8, abort: 0, slow: 0, seed: 7 };
const percentiles = [50, 90, 99];
const sleep = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));
const close = (found: number, expected: number, share: number, what: string) =>
  assert.ok(Math.abs(found / expected - 1) <= share, `${what}: ${found}, not ${expected}`);
const accounted = (row: LoadRow) =>
  assert.equal(row.whole + row.aborted + row.refused + row.failed + row.unfinished + row.dropped, row.planned);

/** A timer on a busy machine may be late three times; one that is wrong is so always. */
async function again(work: () => Promise<void>): Promise<void> {
  for (let left = 2; ; left--) {
    try {
      return await work();
    } catch (error) {
      if (left === 0) throw error;
    }
  }
}

test("arrivals are a Poisson process that follows from its seed", () => {
  const [rps, duration] = [50, 2000];
  const times = [...arrivals({ rps, duration, seed: 3 })];
  assert.deepEqual(times, [...arrivals({ rps, duration, seed: 3 })]);
  assert.notDeepEqual(times.slice(0, 5), [...arrivals({ rps, duration, seed: 4 })].slice(0, 5));
  close(times.length, rps * duration, 0.01, "as many as are offered");
  const gaps = times.slice(1).map((time, i) => time - times[i]!);
  const mean = gaps.reduce((a, b) => a + b) / gaps.length;
  const variance = gaps.reduce((total, gap) => total + (gap - mean) ** 2, 0) / gaps.length;
  close(Math.sqrt(variance), mean, 0.02, "an exponential distribution's deviation is its mean");
  close(percentile(gaps, 90), Math.log(10) / rps, 0.02, "its ninth tenth");
  assert.ok(gaps.every((gap) => gap > 0) && times.at(-1)! < duration);
});

test("requests follow from plan and number, in the shares asked for", () => {
  const mixed: LoadPlan = { ...plan, promptTokens: 80, maxTokens: 40, mix: [3, 1], abort: 0.1, slow: 0.2 };
  const all = Array.from({ length: 20000 }, (_, i) => request(mixed, i));
  assert.deepEqual(all[5], request(mixed, 5));
  const share = (holds: (one: (typeof all)[number]) => boolean) => all.filter(holds).length / all.length;
  close(
    share(({ promptTokens, maxTokens }) => promptTokens === 10 && maxTokens === 5),
    0.75,
    0.03,
    "short",
  );
  close(
    share(({ promptTokens, maxTokens }) => promptTokens === 80 && maxTokens === 40),
    0.25,
    0.05,
    "long",
  );
  close(
    share(({ abortAfter }) => abortAfter !== null),
    0.1,
    0.1,
    "broken off",
  );
  close(
    share(({ slow }) => slow),
    0.2,
    0.1,
    "slow",
  );
  assert.ok(
    all.every(({ abortAfter, maxTokens }) => abortAfter === null || (1 <= abortAfter && abortAfter <= maxTokens)),
  );
  assert.equal(new Set(all.map(({ seed }) => seed)).size, all.length);
  assert.equal(words(all[0]!).split(" ").length, all[0]!.promptTokens);
  assert.notEqual(words({ ...all[1]!, promptTokens: 20 }), words({ ...all[2]!, promptTokens: 20 }));
  const given = { ...plan, prompts: ["a", "b"] };
  assert.deepEqual(
    [0, 1, 2].map((i) => request(given, i).text),
    ["a", "b", "a"],
  );
});

/** Time that passes as soon as nothing else is left to do. */
class VirtualTime implements Clock {
  #now = 0;
  readonly #sleepers: { at: number; wake: () => void }[] = [];
  #pumping = false;

  now = () => this.#now;

  sleep = (ms: number, signal?: AbortSignal) =>
    new Promise<void>((resolve) => {
      const sleeper = { at: this.#now + Math.max(0, ms), wake: resolve };
      this.#sleepers.push(sleeper);
      signal?.addEventListener("abort", () => {
        this.#sleepers.splice(this.#sleepers.indexOf(sleeper), 1);
        resolve();
      });
      if (!this.#pumping) setImmediate(this.#pump);
      this.#pumping = true;
    });

  #pump = () => {
    this.#sleepers.sort((a, b) => a.at - b.at);
    const next = this.#sleepers.shift();
    this.#pumping = next !== undefined;
    if (!next) return;
    this.#now = next.at;
    next.wake();
    setImmediate(this.#pump);
  };
}

/** A target whose first piece and whose pauses take times that are known. */
function known(clock: Clock, firstMs: (index: number) => number, gapMs: number, pieces: number) {
  const asked: { index: number; at: number }[] = [];
  const target: Target = {
    async ask({ index }, signal, onPiece) {
      asked.push({ index, at: clock.now() });
      for (let i = 0; i < pieces; i++) {
        await clock.sleep(i === 0 ? firstMs(index) : gapMs);
        signal.throwIfAborted();
        await onPiece();
      }
      return { tokens: pieces, promptTokens: 3 };
    },
    usage: async () => ({ wasmBytes: 1, processBytes: 2 }),
  };
  return { target, asked };
}

const spread = (index: number) => 500 + ((index * 37) % 100) * 6;

test("known delays come back as percentiles, and each request is asked at its time", async () => {
  const clock = new VirtualTime();
  const open = { ...plan, rps: 60, duration: 30 };
  const { target, asked } = known(clock, spread, 150, 4);
  const row = await run(target, { plan: open, size: null, percentiles, clock });
  accounted(row);
  const times = [...arrivals(open)];
  assert.deepEqual([row.planned, row.whole, row.offeredPerSecond], [times.length, times.length, 60]);
  assert.deepEqual([row.tokens, row.promptTokens], [4 * times.length, 3 * times.length]);
  const firsts = times.map((_, i) => spread(i));
  for (const p of percentiles) {
    close(row.firstMs[`p${p}`]!, percentile(firsts, p), 1e-6, `first p${p}`);
    close(row.gapMs[`p${p}`]!, 150, 1e-6, `gap p${p}`);
    close(row.wholeMs[`p${p}`]!, percentile(firsts, p) + 450, 1e-6, `whole p${p}`);
  }
  assert.ok(asked.every(({ index, at }) => Math.abs(at - 1000 * times[index]!) < 1e-6));
  assert.ok(row.lateMs.most! < 1e-6);
  close(row.tokensPerSecond, row.tokens / row.seconds, 1e-9, "tokens a second");
});

test("latency counts from the planned moment, also while a request waits for its turn", async () => {
  // One at a time, 100 ms each, twice as many as that: the queue grows, and who measures from the sending sees 100 ms.
  const clock = new VirtualTime();
  const open = { ...plan, rps: 20, duration: 10 };
  const { target, asked } = known(clock, () => 100, 0, 1);
  const row = await run(target, { plan: open, size: 1, percentiles, clock });
  accounted(row);
  let free = 0;
  const expected = [...arrivals(open)].map((at) => {
    free = Math.max(free, 1000 * at) + 100;
    return free - 1000 * at;
  });
  for (const p of percentiles) close(row.wholeMs[`p${p}`]!, percentile(expected, p), 1e-6, `p${p}`);
  assert.ok(row.wholeMs.p50! > 1000);
  assert.deepEqual(
    asked.map(({ index }) => index),
    expected.map((_, i) => i),
    "in their order",
  );
});

test("what has not ended a minute after the last request is ended, and counted", async () => {
  const clock = new VirtualTime();
  const { target } = known(clock, (index) => (index % 4 === 0 ? 1e9 : 10), 0, 1);
  const hanging: Target = {
    ...target,
    ask: (planned, signal, onPiece) =>
      Promise.race([
        target.ask(planned, signal, onPiece),
        new Promise<never>((_, reject) => signal.addEventListener("abort", () => reject(signal.reason))),
      ]),
  };
  const row = await run(hanging, { plan: { ...plan, rps: 10, duration: 4 }, size: null, percentiles, clock });
  accounted(row);
  assert.equal(row.unfinished, Math.ceil(row.planned / 4));
  close(row.seconds, 64, 0.01, "a minute after the last one");
});

/** A server in a process of its own, which writes down when it was asked and when it sent each piece. */
const SERVER = `
  const asked = [];
  const firstMs = ${spread};
  const at = () => performance.timeOrigin + performance.now();
  const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
  require("node:http").createServer(async (request, response) => {
    const note = { asked: at(), pieces: [] };
    for await (const _ of request);
    if (request.url === "/v1/models") return response.end('{"data":[{"id":"known"}]}');
    if (request.url === "/metrics") return response.writeHead(404).end();
    if (request.url === "/notes") return response.end(JSON.stringify(asked));
    const index = asked.push(note) - 1;
    response.writeHead(200, { "content-type": "text/event-stream" });
    for (let i = 0; i < 3; i++) {
      await sleep(i === 0 ? 2 * firstMs(index) : 1000);
      note.pieces.push(at());
      response.write('data: {"choices":[{"text":"a"}]}\\n\\n');
    }
    response.end('data: [DONE]\\n\\n');
  }).listen(0, "127.0.0.1", function () { console.log(this.address().port); });
`;

test("a server's own record is what is measured, within 2 %, and the schedule is kept within 1 %", async (context) => {
  const server = spawn(process.execPath, ["-e", SERVER], { stdio: ["ignore", "pipe", "inherit"] });
  context.after(() => server.kill());
  const [port] = await once(server.stdout!.setEncoding("utf8"), "data");
  const host = `http://127.0.0.1:${Number(port)}`;
  const { target } = await serverTarget({ host, chat: false, stopAtEos: true });
  let before = 0;
  await again(async () => {
    const open = { ...plan, rps: 25, duration: 3 };
    const row = await run(target, { plan: open, size: null, percentiles });
    const all: { asked: number; pieces: number[] }[] = await (await fetch(`${host}/notes`)).json();
    const notes = all.slice(before);
    before = all.length;
    accounted(row);
    assert.deepEqual([row.whole, row.planned], [notes.length, notes.length]);
    const firsts = notes.map(({ asked, pieces }) => pieces[0]! - asked);
    const wholes = notes.map(({ asked, pieces }) => pieces[2]! - asked);
    const gaps = notes.flatMap(({ pieces }) => [pieces[1]! - pieces[0]!, pieces[2]! - pieces[1]!]);
    // On a machine that does something else, as late as the timers of this process were.
    const late = row.lateMs.most!;
    const like = (found: number, expected: number, share: number, what: string) =>
      close(found, expected, share + late / expected, `${what}, timers ${late.toFixed(0)} ms late`);
    for (const p of percentiles) {
      like(row.firstMs[`p${p}`]!, percentile(firsts, p), 0.02, `first p${p}`);
      like(row.gapMs[`p${p}`]!, percentile(gaps, p), 0.02, `gap p${p}`);
      like(row.wholeMs[`p${p}`]!, percentile(wholes, p), 0.02, `whole p${p}`);
    }
    const times = [...arrivals(open)];
    const planned = 1000 * (times.at(-1)! - times[0]!);
    like(notes.at(-1)!.asked - notes[0]!.asked, planned, 0.01, "from the first to the last");
    const shifts = notes.map(({ asked }, i) => Math.abs(asked - notes[0]!.asked - 1000 * (times[i]! - times[0]!)));
    assert.ok(percentile(shifts, 90) < 0.01 * planned + late, "each at its time");
  });
});

test("users ask again when they have their answer, and no more are in flight than may be", async () => {
  let [inFlight, most] = [0, 0];
  const clock = new VirtualTime();
  const { target } = known(clock, () => 50, 10, 3);
  const counting: Target = {
    ...target,
    async ask(...args) {
      most = Math.max(most, ++inFlight);
      return target.ask(...args).finally(() => inFlight--);
    },
  };
  const row = await run(counting, { plan: { ...plan, users: 6, duration: 1 }, size: 4, percentiles, clock });
  accounted(row);
  assert.equal(most, 4);
  assert.ok(row.whole === row.planned);
  assert.deepEqual([row.users, row.offeredPerSecond], [6, null]);
  close(row.servedPerSecond, 4 / 0.07, 0.1, "four at a time, each 70 ms");
});

test("who breaks off and who reads slowly is told apart from the others", async () => {
  const clock = new VirtualTime();
  const { target } = known(clock, () => 5, 5, 8);
  const mixed = { ...plan, users: 8, duration: 1, abort: 0.3, slow: 0.3, maxTokens: 8 };
  const row = await run(target, { plan: mixed, size: null, percentiles, clock });
  accounted(row);
  assert.ok(row.aborted > 5 && row.whole > row.aborted, JSON.stringify(row));
  assert.equal(row.failed + row.refused + row.unfinished, 0);
  // A slow reader pauses for 20 ms at each of 8 pieces; whoever reads at once sees 40 ms.
  close(row.wholeMs.most!, 40, 1e-6, "of quick readers alone");
  close(row.gapMs.most!, 5, 1e-6, "likewise");
});

/** A server of known faults: an answer of three pieces, a busy server, an error, and streams that break off. */
async function faultyServer(context: TestContext, behaviour: (count: number) => string) {
  let count = 0;
  const bodies: Record<string, unknown>[] = [];
  const answer = async (request: IncomingMessage, response: ServerResponse) => {
    if (request.url === "/v1/models") return response.end(JSON.stringify({ data: [{ id: "small" }] }));
    if (request.url === "/metrics") return response.writeHead(404).end();
    let text = "";
    for await (const part of request) text += part;
    const body = JSON.parse(text);
    bodies.push({ ...body, url: request.url, key: request.headers.authorization });
    const how = behaviour(count++);
    if (how === "busy") return response.writeHead(429, { "retry-after-ms": "20" }).end("{}");
    if (how === "error") return response.writeHead(500).end("no memory");
    if (how === "plain") return response.writeHead(200, { "content-type": "application/json" }).end("{}");
    response.writeHead(200, { "content-type": "text/event-stream" });
    const chat = request.url!.includes("chat");
    const send = (value: unknown) =>
      response.write(`data: ${typeof value === "string" ? value : JSON.stringify(value)}\r\n\r\n`);
    if (how === "error inside") {
      send({ error: { message: "broken" } });
      return response.end();
    }
    for (const piece of ["one ", "two ", "three"]) {
      send({ choices: [chat ? { delta: { content: piece } } : { text: piece }] });
      await sleep(5);
      if (how === "break") return response.destroy();
      if (how === "end") return response.end();
    }
    send({ choices: [{ finish_reason: "length", text: "" }] });
    send({ choices: [], usage: { completion_tokens: 11, prompt_tokens: 17 } });
    send("[DONE]");
    return response.end();
  };
  const server = createServer((request, response) => void answer(request, response));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  context.after(() => server.close());
  return { host: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, bodies };
}

test("a server's answers, refusals and faults are each counted as what they are", async (context) => {
  const kinds = ["whole", "busy", "error", "break", "whole", "end", "error inside", "plain"];
  const { host, bodies } = await faultyServer(context, (count) => kinds[count % kinds.length]!);
  const { target, name } = await serverTarget({ host, chat: false, stopAtEos: false, apiKey: "k" });
  assert.match(name, /^small at http:.*\/v1$/);
  const row = await run(target, { plan: { ...plan, rps: 40, duration: 2 }, size: null, percentiles });
  accounted(row);
  const times = (kind: string) => bodies.filter((_, i) => kinds[i % kinds.length] === kind).length;
  assert.equal(row.planned, bodies.length);
  assert.deepEqual([row.whole, row.refused], [times("whole"), times("busy")]);
  assert.equal(row.failed, bodies.length - row.whole - row.refused);
  assert.equal(row.errors["HTTP 500: no memory"], times("error"));
  assert.equal(row.errors.broken, times("error inside"));
  assert.equal(row.errors["the stream broke off"], times("end"));
  assert.equal(row.errors["the answer is no stream but application/json"], times("plain"));
  // The server's own count, and a piece of each that broke off.
  assert.equal(row.promptTokens, 17 * row.whole);
  assert.ok(row.tokens >= 11 * row.whole && row.tokens <= 11 * row.whole + times("break") + times("end"));
  const { model, max_tokens, stream, ignore_eos, prompt, url, key } = bodies[0]!;
  assert.deepEqual(
    [model, max_tokens, stream, ignore_eos, url, key],
    ["small", 8, true, true, "/v1/completions", "Bearer k"],
  );
  assert.equal((prompt as string).split(" ").length, 16);
});

test("an answer that never ends is ended, and counted", async () => {
  const aborts = new AbortController();
  const hanging: Target = {
    ask: (_, signal) => new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason))),
    usage: async () => ({ wasmBytes: null, processBytes: null }),
  };
  const running = run(hanging, {
    plan: { ...plan, users: 2, duration: 1 },
    size: null,
    percentiles,
    signal: aborts.signal,
  });
  setTimeout(() => aborts.abort(new Error("enough")), 200);
  await assert.rejects(running, /enough/);
});

test("a table that cannot be written is told behind the report", async (context) => {
  const { host } = await faultyServer(context, () => "whole");
  const { status, stdout, stderr } = await ternlight(
    "loadtest",
    "--host",
    host,
    "--duration",
    "0.2",
    "-n",
    "5",
    "--csv",
    "/dev/full",
  );
  assert.equal(status, 1);
  assert.match(stdout, /requests/);
  assert.match(stderr, /Unwritable: --csv: ENOSPC/);
});

test("the command line asks a server, and writes a table and a picture", async (context) => {
  const { host, bodies } = await faultyServer(context, (count) => (count % 10 === 9 ? "busy" : "whole"));
  const folder = await mkdtemp(path.join(tmpdir(), "ternlight-"));
  context.after(() => rm(folder, { recursive: true, force: true }));
  const [table, plot, prompts] = ["a.csv", "a.svg", "prompts.txt"].map((name) => path.join(folder, name)) as [
    string,
    string,
    string,
  ];
  await writeFile(prompts, "What is <this>?\n\nAnd that?\n");
  const common = ["loadtest", "--host", `${host}/v1/`, "--duration", "0.5", "--batch-sizes", "1,2,4", "-n", "5"];
  const extra = ["--chat", "--stop-at-eos", "--prompts", prompts, "--latency-percentiles", "50,95"];
  const found: LoadReport = await json(...common, ...extra, "--csv", table, "--plot", plot);
  assert.deepEqual(
    found.rows.map(({ size, users }) => [size, users]),
    [
      [1, 1],
      [2, 2],
      [4, 4],
    ],
  );
  for (const row of found.rows) {
    accounted(row);
    assert.ok(row.whole > 0);
    assert.deepEqual(Object.keys(row.wholeMs), ["p50", "p95", "most"]);
  }
  const { messages, ignore_eos, url } = bodies[1]! as {
    messages: { content: string }[];
    ignore_eos?: true;
    url: string;
  };
  assert.deepEqual([messages[0]!.content, ignore_eos, url], ["And that?", undefined, "/v1/chat/completions"]);

  const lines = (await readFile(table, "utf8")).trimEnd().split("\n");
  assert.equal(lines.length, 4);
  const [head, ...rows] = lines.map((line) => line.split(","));
  assert.ok(rows.every((cells) => cells.length === head!.length));
  const column = (name: string) => rows.map((cells) => Number(cells[head!.indexOf(name)]));
  assert.deepEqual(column("size"), [1, 2, 4]);
  assert.deepEqual(
    column("wholeMs.p95"),
    found.rows.map(({ wholeMs }) => wholeMs.p95),
  );
  const svg = await readFile(plot, "utf8");
  assert.equal(svg.match(/<circle/g)!.length, 3 * 2 * 2);
  assert.match(svg, /whole answer, p95/);

  const { stdout } = await done(...common, "--rps", "20");
  assert.match(stdout, /requests: \d+ whole, 0 broken off, \d+ refused/);
});

test("the command line asks a model in the process", async () => {
  const found: LoadReport = await json(
    ...[
      "loadtest",
      DEMO,
      "--batch-sizes",
      "1,4",
      "--duration",
      "1",
      "--prompt-tokens",
      "32",
      "-n",
      "16",
      "--threads",
      "1",
    ],
    ...["--abort", "0.2", "--slow", "0.1", "--mix", "3:1"],
  );
  for (const row of found.rows) {
    accounted(row);
    assert.ok(row.whole + row.aborted > 0 && row.tokens > row.whole && row.failed === 0, JSON.stringify(row));
    assert.equal(row.clientCores, null);
    assert.ok(row.memory.after.wasmBytes! > 1e6 && row.memory.after.processBytes! > 1e7 && row.cpuCores! > 0);
    // A busy machine may have time for nothing but what is broken off.
    if (row.whole > 0) assert.ok(row.wholeMs.most! >= row.firstMs.p50!);
  }
  const queued: LoadReport = await json(
    ...["loadtest", DEMO, "--rps", "400", "--duration", "1", "-n", "64", "--threads", "1"],
    ...["--max-sequences", "1", "--max-waiting", "1"],
  );
  accounted(queued.rows[0]!);
  assert.ok(queued.rows[0]!.refused > 0, "the engine's own queue is bounded");
});

test("what does not go together is refused", async () => {
  for (const [expected, ...args] of [
    [/give either --rps or --users/, DEMO, "--rps", "5", "--users", "2"],
    [/--seconds does not go with --rps/, DEMO, "--rps", "5", "--seconds", "2"],
    [/--clients does not go with --duration/, DEMO, "--duration", "5", "--clients", "2"],
    [/--chat belongs to --host/, DEMO, "--rps", "5", "--chat"],
    [/give either a model or --host/, DEMO, "--host", "http://localhost:1"],
    [/--mix must be two numbers like 3:1, not 3/, DEMO, "--rps", "5", "--mix", "3"],
    [/--batch-sizes must be an integer from 1/, DEMO, "--batch-sizes", "4,x"],
    [/--abort must be a number from 0 to 1/, DEMO, "--rps", "5", "--abort", "2"],
  ] as [RegExp, ...string[]][]) {
    const { message } = await failure(2, "loadtest", ...args);
    assert.match(message, expected);
  }
  assert.match((await failure(1, "loadtest", "--host", "localhost:80")).message, /must be an address like/);
  assert.match((await failure(1, "loadtest", "--host", "http://127.0.0.1:9")).message, /lists no model/);
});

test("events are read whatever parts they come in", async () => {
  const text = 'data: {"a":1}\r\n\r\n: ping\r\n\r\nevent: x\ndata:two é\n\ndata: [DONE]\n\n';
  const bytes = new TextEncoder().encode(text);
  for (const size of [1, 2, 3, 7, bytes.length]) {
    const parts = Array.from({ length: Math.ceil(bytes.length / size) }, (_, i) =>
      bytes.slice(i * size, (i + 1) * size),
    );
    const found: string[] = [];
    const body = new ReadableStream<Uint8Array>({
      start(controller) {
        for (const part of parts) controller.enqueue(part);
        controller.close();
      },
    });
    for await (const data of events(body)) found.push(data);
    assert.deepEqual(found, ['{"a":1}', "two é", "[DONE]"], `${size}`);
  }
});

test("a table and a picture hold what there is, and quote what strangers wrote", () => {
  const row = { size: 1, whole: 1, errors: {}, firstMs: {}, gapMs: {}, wholeMs: {}, lateMs: {}, servedPerSecond: 0 };
  const rows = [{ ...row, memory: { after: { wasmBytes: null, processBytes: null } } }] as unknown as LoadRow[];
  const about = { date: "", machine: { runtime: "", cpu: null, cores: 1 }, target: "<script>&", duration: 1, seed: 1 };
  const report: LoadReport = { ...about, percentiles: [50], rows, knee: kneeOf(rows) };
  assert.ok(!picture(report).includes("<script>"));
  assert.doesNotMatch(picture(report), /NaN|Infinity|undefined/);
  assert.doesNotMatch(csv(report), /NaN|undefined|null/);
  assert.equal(report.knee, null);
});

test("any flag of a plan asks for a measurement", async () => {
  const common = ["--threads", "1", "-n", "4"];
  for (const flags of [
    ["--duration", "0.3", "--prompt-tokens", "16"],
    ["--duration", "0.3", "--mix", "1:1"],
  ]) {
    const { rows } = await json("loadtest", "--model", DEMO, ...flags, ...common);
    assert.deepEqual([rows[0].users, rows[0].whole > 0], [1, true]);
  }
});

test("rows have the memory and the processor time of the server, not of the load test", async (context) => {
  const server = await serve(context, [], { env: { TERNLIGHT_API_KEY: "secret" } });
  const flags = ["--duration", "1", "--users", "2", "--prompt-tokens", "8", "-n", "32", "--api-key", "secret"];
  const { rows } = await json("loadtest", "--host", server.url, ...flags);
  const { memory, cpuCores, clientCores, whole } = rows[0];
  assert.ok(whole > 0 && memory.after.wasmBytes > 1e6 && memory.after.processBytes > 5e7, JSON.stringify(memory));
  assert.ok(cpuCores > 0 && clientCores > 0 && cpuCores !== clientCores, `${cpuCores}, ${clientCores}`);
  const status = await readFile(`/proc/${server.child.pid}/status`, "utf8");
  const resident = 1024 * Number(/^VmRSS:\s+(\d+)/m.exec(status)![1]);
  assert.ok(Math.abs(memory.after.processBytes / resident - 1) < 0.3, `${memory.after.processBytes}, not ${resident}`);
  const { stdout } = await done("loadtest", "--host", server.url, ...flags);
  assert.match(stdout, /cores +memory\n.* \d+\.\d\d +[\d.]+ [MG]B\n/);
  assert.match(stdout, /the load test itself took \d\.\d\d cores at most/);
  // A server without metrics is measured all the same.
  const { host } = await faultyServer(context, () => "whole");
  const [{ memory: none, cpuCores: unknown }] = (await json("loadtest", "--host", host, "--duration", "0.2")).rows;
  assert.deepEqual([none.after, unknown], [{ wasmBytes: null, processBytes: null }, null]);
});

test("without a server, --model is the model in this process", async () => {
  const common = ["--duration", "0.5", "-n", "4", "--prompt-tokens", "8", "--threads", "1"];
  const { rows, target } = await json("loadtest", "--model", DEMO, "--users", "2", ...common);
  assert.equal(target, DEMO);
  assert.ok(rows[0].whole > 0);
  accounted(rows[0]);
  for (const more of [[DEMO], ["--shape", "fairy"]]) {
    const { message } = await failure(2, "loadtest", ...more, "--model", DEMO, "--users", "2");
    assert.match(message, /--model belongs to --host, or stands in place of MODEL/);
  }
});
