import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { type TestContext, test } from "node:test";
import { type DoctorReport, doctor } from "ternlight/doctor";
import { advise } from "../../src/doctor/advice.ts";
import { failure, json, ternlight } from "../cli/support/ternlight.ts";

const GGUF = Buffer.concat([Buffer.from("GGUF"), Buffer.alloc(96)]);
const SAFETENSORS = Buffer.concat([Buffer.from([9, 0, 0, 0, 0, 0, 0, 0]), Buffer.from(`{"a":null}${" ".repeat(40)}`)]);

async function server(context: TestContext, answer: RequestListener): Promise<string> {
  const server = createServer(answer).listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  context.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/model`;
}

const partial =
  (bytes: Buffer, headers: Record<string, string>): RequestListener =>
  (request, response) => {
    const [, from, to] = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? "") ?? [];
    const part = bytes.subarray(Number(from), Number(to) + 1);
    response.writeHead(206, { "content-range": `bytes ${from}-${to}/${bytes.length}`, ...headers }).end(part);
  };

test("this runtime", async () => {
  const { source, storage, isolated, advice, memory, ...found } = await doctor();
  assert.equal(source, null);
  assert.equal(storage, null);
  assert.equal(isolated, null);
  assert.equal(found.runtime, `Node ${process.versions.node}`);
  assert.equal(found.engineError, null);
  assert.equal(found.flavour, `${found.threads > 1 ? "threads" : "single"}-${found.simd}`);
  assert.equal(memory.reservable, 2 ** 32);
  assert.ok(memory.free! > 0);
  assert.ok(
    advice.every(({ level }) => level === "note"),
    JSON.stringify(advice),
  );
});

test("an address that serves well", async (context) => {
  const headers = { etag: '"1"', "access-control-allow-origin": "*", "content-type": "application/octet-stream" };
  const url = await server(context, partial(GGUF, headers));
  const { source, advice } = await doctor(url);
  assert.deepEqual(source, {
    url,
    status: 206,
    error: null,
    size: 100,
    range: true,
    validator: "ETag",
    contentType: "application/octet-stream",
    format: "GGUF",
    cors: true,
  });
  assert.ok(advice.every(({ level }) => level === "note"));
});

test("addresses that do not, each with advice that names the cure", async (context) => {
  const whole = (bytes: Buffer | string, headers = {}) =>
    ((_, response) => response.writeHead(200, headers).end(bytes)) as RequestListener;
  const cases: [string, RequestListener, Partial<DoctorReport["source"] & object>, RegExp, string][] = [
    [
      "no ranges",
      whole(SAFETENSORS, { "content-length": "58" }),
      { range: false, format: "safetensors", size: 58 },
      /knows no ranges/,
      "warning",
    ],
    ["no validator", partial(GGUF, {}), { validator: null }, /neither ETag nor Last-Modified/, "warning"],
    [
      "a page",
      whole("<!doctype html>", { "content-type": "text/html" }),
      { format: "web page" },
      /a web page/,
      "error",
    ],
    [
      "something else",
      partial(Buffer.alloc(64, 1), {}),
      { format: "unknown" },
      /neither GGUF nor safetensors/,
      "warning",
    ],
    [
      "not there",
      (_, response) => response.writeHead(404).end(),
      { status: 404, error: "HTTP 404" },
      /answered 404/,
      "error",
    ],
    ["no CORS", partial(GGUF, { etag: "1" }), { cors: false }, /Access-Control-Allow-Origin/, "note"],
    [
      "an unknown size",
      partial(GGUF, { "content-range": "bytes 0-15/*" }),
      { size: null },
      /size is not shown/,
      "warning",
    ],
    ["cut off", (request) => request.socket.destroy(), { status: null }, /does not answer/, "error"],
  ];
  for (const [name, answer, expected, words, level] of cases) {
    await context.test(name, async (context) => {
      const { source, advice } = await doctor(await server(context, answer));
      assert.deepEqual(source, { ...source, ...expected });
      assert.equal(advice.find(({ text }) => words.test(text))?.level, level, JSON.stringify(advice));
    });
  }
});

test("what is no address", async () => {
  await assert.rejects(doctor("https://exa mple/model.gguf"), {
    code: "InvalidArgument",
    message: 'url: "https://exa mple/model.gguf" is not a URL',
  });
  await assert.rejects(doctor("none.gguf"), { code: "NotFound" });
});

test("an aborted look", async (context) => {
  const url = await server(context, () => {});
  const why = new Error("enough");
  await assert.rejects(doctor(url, { signal: AbortSignal.abort(why) }), why);
  const controller = new AbortController();
  const looking = doctor(url, { signal: controller.signal });
  setTimeout(() => controller.abort(why), 50);
  await assert.rejects(looking, why);
});

const well = {
  runtime: "Chrome 156",
  isolated: true,
  simd: "relaxed",
  flavour: "threads-relaxed",
  threads: 8,
  cores: 8,
  threadsReason: null,
  engineError: null,
  memory: { reservable: 2 ** 32, free: null },
  storage: { quota: 2 ** 40, usage: 0, persisted: true },
  source: null,
  system: null,
  model: null,
} as const;
const seen = (changes: Partial<DoctorReport>) =>
  advise({ ...well, ...changes }).map(({ level, text }) => `${level} ${text}`);

test("advice for pages, the most important first", () => {
  assert.deepEqual(seen({}), []);
  assert.match(seen({ simd: null, flavour: null })[0]!, /^error .*wasm-unsafe-eval/);
  assert.match(seen({ engineError: "blocked" })[0]!, /^error .*blocked.*worker-src/);
  assert.match(seen({ isolated: false, threads: 1, threadsReason: "no" })[0]!, /^warning .*Cross-Origin-Opener-Policy/);
  assert.match(seen({ threads: 1, threadsReason: "this and that" })[0]!, /^warning .*one thread: this and that/);
  assert.match(seen({ memory: { reservable: 2 ** 30, free: null } })[0]!, /^warning .*1024 MiB at most/);
  assert.match(
    seen({ storage: { quota: 2 ** 30, usage: 2 ** 29, persisted: true } })[0]!,
    /^warning 512 MiB of storage/,
  );
  assert.match(seen({ storage: { quota: 2 ** 40, usage: 0, persisted: false } })[0]!, /^note .*persist/);
  const levels = seen({ simd: "simd128", isolated: false, engineError: "x" }).map((line) => line.split(" ")[0]);
  assert.deepEqual(levels, ["error", "warning", "note"]);
});

test("on the command line: words or JSON, and status 1 where something does not run", async (context) => {
  const good = await server(context, partial(GGUF, { etag: "1", "access-control-allow-origin": "*" }));
  const { source, threads } = await json("doctor", good);
  assert.equal(source.format, "GGUF");
  assert.ok(threads >= 1);
  const bad = await server(context, (_, response) => response.writeHead(403).end());
  const { status, stdout, stderr } = await ternlight("doctor", bad);
  assert.equal(status, 1, stderr);
  assert.match(stdout, /^runtime +Node .*\n(.*\n)*\nerror: the server answered 403/);
  assert.equal((await failure(1, "doctor", "none.gguf")).code, "NotFound");
});

test("passwords and tokens of an address are shown nowhere", async (context) => {
  const seen: (string | undefined)[] = [];
  const plain = await server(context, (request, response) => {
    seen.push(request.headers.authorization);
    if (!request.headers.authorization) return void response.writeHead(401).end();
    partial(GGUF, { etag: '"1"' })(request, response);
  });
  const secret = `${plain.replace("//", "//joe:pass%20word@")}?token=hidden&sig=s3cret#key`;
  const { source } = await doctor(secret);
  assert.equal(source!.url, plain);
  assert.deepEqual([source!.status, source!.format, source!.error], [206, "GGUF", null]);
  assert.deepEqual(seen, [`Basic ${Buffer.from("joe:pass word").toString("base64")}`]);

  const unreachable = secret.replace(/:\d+\//, ":9/");
  for (const [command, address] of [
    ["doctor", secret],
    ["doctor", unreachable],
    ["doctor", secret.replace("http:", "ftp:")],
    ["doctor", secret.replace("127.0.0.1", "exa mple")],
    ["inspect", unreachable],
    ["inspect", secret.replace("127.0.0.1", "exa mple")],
    ["cache delete", secret.replace("127.0.0.1", "exa mple")],
  ] as const) {
    for (const flags of [[], ["--json", "--debug"]]) {
      const { stdout, stderr } = await ternlight(...command.split(" "), address, ...flags);
      assert.doesNotMatch(stdout + stderr, /joe|pass|word|hidden|s3cret|key/, `${command} ${address}`);
    }
  }
});

test("a report names a model by its address without what is secret in it", async (context) => {
  const folder = new URL("../../../tests/golden/models/bitnet_packed/", import.meta.url);
  const url = await server(context, async (request, response) => {
    const name = new URL(request.url!, "http://loopback").pathname.slice(1);
    const body = await readFile(new URL(name, folder)).catch(() => null);
    response.writeHead(body ? 200 : 404).end(body ?? "");
  });
  const address = `${new URL("/", url).href.replace("//", "//joe:pass@")}model.safetensors?token=hidden`;
  const { stdout, status, stderr } = await ternlight("inspect", address);
  assert.equal(status, 0, stderr);
  assert.equal(stdout.split("\n")[0], new URL("/model.safetensors", url).href);
});

test("advice for a machine and a model: what was found, what it costs, the way out", () => {
  const system = { processors: 8, physicalCores: 8, governors: ["performance"], cpuLimit: null, memoryLimit: null };
  const memory = { weights: 900 * 2 ** 20, kv: 64 * 2 ** 20, states: 0, scratch: 36 * 2 ** 20, total: 1000 * 2 ** 20 };
  const model = { error: null, askedThreads: null, contextLength: 4096, memory, f16KvBytes: memory.kv };
  const one = (changes: Partial<DoctorReport>) => {
    const [line, ...more] = seen({ system, model, ...changes });
    assert.deepEqual(more, []);
    return line;
  };
  assert.equal(one({}), undefined);
  assert.match(
    one({ system: { ...system, physicalCores: 4 } })!,
    /^warning 8 threads .* 4 physical cores: .*; take threads: 4 /,
  );
  assert.match(
    one({ system: { ...system, governors: ["powersave", "performance"] } })!,
    /^warning .* is powersave: .*; set performance/,
  );
  assert.equal(one({ system: { ...system, governors: ["schedutil"] } }), undefined);
  assert.match(
    one({ system: { ...system, cpuLimit: 2.5 } })!,
    /^warning .* may use 2\.5 cores .* 8 threads are .*: .*; raise the limit to 8 cores, or take threads: 2$/,
  );
  assert.match(
    one({ threads: 1, system: { ...system, cpuLimit: 0.5 } })!,
    /1 thread is .* raise the limit to 1 cores$/,
  );
  assert.equal(one({ system: { ...system, cpuLimit: 8 } }), undefined);
  assert.match(
    one({ system: { ...system, memoryLimit: 1100 * 2 ** 20 } })!,
    /^error .* 1100 MiB \(memory\.max\).* 1000 MiB .* raise the limit to 1256 MiB/,
  );
  assert.equal(one({ system: { ...system, memoryLimit: 1256 * 2 ** 20 } }), undefined);
  assert.match(one({ model: { ...model, error: "there are 5 bytes" } })!, /^error .*there are 5 bytes; can-run/);
  assert.match(one({ model: { ...model, askedThreads: 16 } })!, /^warning 16 threads .* 8 cores: .*; take threads: 8/);
  const f32 = { ...model, f16KvBytes: memory.kv / 2 };
  assert.match(
    one({ model: f32 })!,
    /^warning .* f32 .* 4096 tokens: 64 MiB instead of 32 MiB .*; take kvCacheType: "f16"/,
  );
  assert.equal(one({ model: { ...f32, contextLength: 512 } }), undefined, "a short context");
});

test("a model is planned as it would be loaded, and a machine examined for it", async () => {
  const { model, system, source } = await json("doctor", "ternlight-demo", "--kv", "f32", "--threads", "64");
  assert.equal(source, null);
  assert.equal(system === null, process.platform !== "linux");
  assert.deepEqual([model.error, model.askedThreads, model.contextLength], [null, 64, 512]);
  assert.equal(model.memory.kv, 2 * model.f16KvBytes);
  const { stdout, status } = await ternlight("doctor", "ternlight-demo", "--threads", "64");
  assert.equal(status, 0, stdout);
  assert.match(stdout, /^model +needs .* for a context of 512$/m);
  assert.match(stdout, /^warning: 64 threads were asked for, and there are \d+ cores/m);
});
