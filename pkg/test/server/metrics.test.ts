/** The server's metrics: their names in three dialects, and a real Prometheus that reads them. */

import assert from "node:assert/strict";
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { type TestContext, test } from "node:test";
import type { RequestRecord, Telemetry } from "ternlight/server";
import { body, served } from "./support/app.ts";
import { serve, until } from "./support/command.ts";

const PROMTOOL = process.env.PROMTOOL ?? "/usr/bin/promtool";
const PROMETHEUS = process.env.PROMETHEUS ?? "/usr/bin/prometheus";
const ask = { model: "demo", prompt: "Once upon a time", max_tokens: 12, temperature: 0 };

const text = async (response: Response | Promise<Response>) => {
  const found = await response;
  assert.equal(found.status, 200);
  return found.text();
};

/** The value of a sample; the labels in the order in which they are written. */
function sample(exposition: string, name: string): number {
  const line = exposition.split("\n").find((line) => line.startsWith(`${name} `));
  assert.ok(line, `there is no ${name} in\n${exposition.slice(0, 3000)}`);
  return Number(line.split(" ").at(-1));
}

/** What promtool says against a text: nothing, where it is right. */
function lint(exposition: string): string {
  try {
    execFileSync(PROMTOOL, ["check", "metrics"], {
      input: exposition,
      encoding: "utf8",
      stdio: ["pipe", "pipe", "pipe"],
    });
    return "";
  } catch (error) {
    const { stdout, stderr } = error as { stdout: string; stderr: string };
    return stdout + stderr;
  }
}

test("requests are counted under ternlight's names", async (context) => {
  const app = await served(context);
  await body(app.post("/v1/completions", ask));
  await body(app.post("/v1/completions", ask));
  await app.post("/v1/completions", { ...ask, prompt: Array(5000).fill(5) });
  await app.get("/no/such/path");
  const found = await text(app.get("/metrics"));
  const of = (name: string, labels = "") => sample(found, `ternlight_${name}{model="demo"${labels}}`);
  assert.equal(of("requests_total", ',call="generate",outcome="length"'), 2);
  assert.equal(of("refusals_total", ',reason="ContextFull"'), 1);
  assert.equal(of("requests_total", ',call="generate",outcome="refused"'), 1);
  assert.equal(of("generated_tokens_total"), 24);
  assert.equal(of("prompt_tokens_total") + of("cached_tokens_total"), 8);
  assert.equal(of("first_token_seconds_count"), 2);
  assert.equal(of("gap_seconds_count"), 22);
  // The server has asked the model what it is.
  assert.ok(of("queue_seconds_count") >= 2);
  assert.equal(of("request_answer_tokens_sum"), 24);
  assert.ok(of("step_seconds_count") >= 24);
  assert.deepEqual([of("requests_running"), of("queue_depth")], [0, 0]);
  assert.ok(of("kv_cache_tokens") > 0 && of("memory_bytes") > 1e6 && of("threads") === 1);
  assert.equal(of("health_state", ',signal="weights"'), -1);
  assert.equal(of("health_state", ',signal="nonFinite"'), 0);
  assert.equal(sample(found, 'ternlight_http_requests_total{method="POST",path="/v1/completions",status="200"}'), 2);
  assert.equal(sample(found, 'ternlight_http_requests_total{method="GET",path="other",status="404"}'), 1);
  assert.equal(sample(found, 'ternlight_model_ready{model="demo"}'), 1);
});

test("every name is one of a family alone, and the start of the process stays", async (context) => {
  const app = await served(context);
  await body(app.post("/v1/completions", ask));
  const accept = "application/openmetrics-text;version=1.0.0";
  const [first, second] = [await text(app.get("/metrics", { headers: { accept } })), await text(app.get("/metrics"))];
  const families = [...first.matchAll(/^# TYPE (\S+) /gm)].map(([, name]) => name);
  assert.equal(new Set(families).size, families.length, families.join(" "));
  await new Promise((resolve) => setTimeout(resolve, 30));
  const third = await text(app.get("/metrics"));
  assert.equal(sample(second, "process_start_time_seconds"), sample(third, "process_start_time_seconds"));
});

test("refusals of parts that were tried again are none of a client's, and the server's own are", async (context) => {
  const again = await served(context, { maxSequences: 1, maxWaiting: 0 });
  await body(again.post("/v1/completions", { ...ask, n: 4 }));
  const parts = await text(again.get("/metrics"));
  assert.ok(sample(parts, 'ternlight_refusals_total{model="demo",reason="QueueFull"}') > 0);
  assert.doesNotMatch(parts, /status="429"/);
  const bounded = await served(context, {}, { maxRequests: 1 });
  const long = bounded.post("/v1/completions", { ...ask, max_tokens: 200, ignore_eos: true });
  while (bounded.active < 1) await new Promise((resolve) => setTimeout(resolve, 1));
  assert.equal((await bounded.post("/v1/completions", ask)).status, 429);
  await body(long);
  const own = await text(bounded.get("/metrics"));
  assert.equal(sample(own, 'ternlight_http_requests_total{method="POST",path="/v1/completions",status="429"}'), 1);
  assert.equal(sample(own, 'ternlight_refusals_total{model="demo",reason="QueueFull"}'), 0);
});

test("the dialects have the names, labels and buckets of llama-server and vLLM", async (context) => {
  const app = await served(context, {}, { metricsDialect: "vllm" });
  await body(app.post("/v1/completions", ask));
  const vllm = await text(app.get("/metrics"));
  const labels = 'model_name="demo",engine="0"';
  assert.equal(sample(vllm, `vllm:generation_tokens_total{${labels}}`), 12);
  assert.equal(sample(vllm, `vllm:prompt_tokens_total{${labels}}`), 4);
  assert.equal(sample(vllm, `vllm:request_success_total{${labels},finished_reason="length"}`), 1);
  for (const name of ["num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"])
    assert.equal(sample(vllm, `vllm:${name}{${labels}}`), 0);
  const bounds = (name: string) =>
    [...vllm.matchAll(new RegExp(`^vllm:${name}_bucket\\{${labels},le="([^"]+)"\\}`, "gm"))].map(([, le]) =>
      Number(le!.replace("+Inf", "Infinity")),
    );
  const first = [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160];
  assert.deepEqual(bounds("time_to_first_token_seconds"), [...first, 640, 2560, Infinity]);
  const each = [
    0.01,
    0.025,
    0.05,
    0.075,
    0.1,
    0.15,
    0.2,
    0.3,
    0.4,
    0.5,
    0.75,
    1,
    2.5,
    5,
    7.5,
    10,
    20,
    40,
    80,
    Infinity,
  ];
  assert.deepEqual(bounds("inter_token_latency_seconds"), each);
  assert.deepEqual(bounds("request_time_per_output_token_seconds"), each);
  const whole = [
    0.3,
    0.5,
    0.8,
    1,
    1.5,
    2,
    2.5,
    5,
    10,
    15,
    20,
    30,
    40,
    50,
    60,
    120,
    240,
    480,
    960,
    1920,
    7680,
    Infinity,
  ];
  for (const name of ["e2e_request_latency", "request_queue_time", "request_prefill_time", "request_decode_time"])
    assert.deepEqual(bounds(`${name}_seconds`), whole, name);
  for (const name of ["time_to_first_token_seconds", "e2e_request_latency_seconds", "request_generation_tokens"])
    assert.equal(sample(vllm, `vllm:${name}_count{${labels}}`), 1);
  for (const name of ["prefix_cache_queries_total", "prefix_cache_hits_total", "prompt_tokens_cached_total"])
    sample(vllm, `vllm:${name}{${labels}}`);
  assert.match(vllm, /^vllm:cache_config_info\{.*block_size="32",num_gpu_blocks="\d+".*\} 1$/m);

  const llama = await text(app.get("/metrics?dialect=llama"));
  assert.equal(sample(llama, "llamacpp:tokens_predicted_total"), 12);
  assert.equal(sample(llama, "llamacpp:prompt_tokens_total"), 4);
  for (const name of [
    ...["prompt_seconds_total", "tokens_predicted_seconds_total", "n_decode_total", "n_tokens_max"],
    ...["prompt_tokens_seconds", "predicted_tokens_seconds", "n_busy_slots_per_decode"],
  ])
    assert.ok(sample(llama, `llamacpp:${name}`) > 0, name);
  for (const name of ["requests_processing", "requests_deferred"]) assert.equal(sample(llama, `llamacpp:${name}`), 0);
  assert.equal((await app.get("/metrics?dialect=tgi")).status, 400);
});

const histograms = (...names: string[]) =>
  names.flatMap((name) => [`vllm:${name}_bucket`, `vllm:${name}_sum`, `vllm:${name}_count`]);

/** What the dashboard that vLLM publishes asks for, and gateways and autoscalers besides. */
const VLLM = [
  ...["num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "cache_config_info"].map(
    (name) => `vllm:${name}`,
  ),
  ...["prompt_tokens_total", "generation_tokens_total", "request_success_total", "prefix_cache_queries_total"].map(
    (name) => `vllm:${name}`,
  ),
  ...["prefix_cache_hits_total", "prompt_tokens_cached_total"].map((name) => `vllm:${name}`),
  ...histograms("time_to_first_token_seconds", "inter_token_latency_seconds", "request_time_per_output_token_seconds"),
  ...histograms("e2e_request_latency_seconds", "request_queue_time_seconds", "request_prefill_time_seconds"),
  ...histograms("request_decode_time_seconds", "request_prompt_tokens", "request_generation_tokens"),
  ...histograms("request_max_num_generation_tokens", "iteration_tokens_total"),
];

/** What dashboards over llama-server ask for. */
const LLAMA = [
  ...["prompt_tokens_total", "prompt_seconds_total", "tokens_predicted_total", "tokens_predicted_seconds_total"],
  ...["n_decode_total", "n_tokens_max", "n_busy_slots_per_decode", "prompt_tokens_seconds", "predicted_tokens_seconds"],
  ...["requests_processing", "requests_deferred", "kv_cache_usage_ratio", "kv_cache_tokens"],
].map((name) => `llamacpp:${name}`);

test("published dashboards find every metric that they ask for", async (context) => {
  const app = await served(context);
  await body(app.post("/v1/completions", { ...ask, n: 2 }));
  for (const [dialect, wanted] of Object.entries({ vllm: VLLM, llama: LLAMA })) {
    const scraped = await text(app.get(`/metrics?dialect=${dialect}`));
    const names = new Set(Array.from(scraped.matchAll(/^([\w:]+)(?:\{.*\})? \S+$/gm), ([, name]) => name));
    assert.deepEqual(
      wanted.filter((name) => !names.has(name)),
      [],
      dialect,
    );
    if (dialect === "vllm")
      for (const line of scraped.split("\n").filter((line) => line.startsWith("vllm:")))
        assert.match(line, /\{model_name="demo",engine="0"/);
  }
});

test("promtool finds the text right, and the type follows the Accept header", async (context) => {
  const app = await served(context, { health: { share: 1 } });
  await body(app.post("/v1/completions", { ...ask, max_tokens: 40, ignore_eos: true }));
  const own = await text(app.get("/metrics"));
  assert.equal(lint(own), "");
  for (const part of ["keys", "values"])
    assert.ok(sample(own, `ternlight_health_kv_entropy{model="demo",layer="5",part="${part}"}`) > 1, part);
  for (const dialect of ["llama", "vllm"]) {
    // Their names are not as promtool likes them; what it could not read would be an error of another kind.
    const said = lint(await text(app.get(`/metrics?dialect=${dialect}`)));
    assert.ok(!said.includes("error while linting"), said);
  }
  const plain = await app.get("/metrics");
  assert.equal(plain.headers.get("content-type"), "text/plain; version=0.0.4; charset=utf-8");
  const open = await app.get("/metrics", { headers: { accept: "application/openmetrics-text; version=1.0.0" } });
  assert.equal(open.headers.get("content-type"), "application/openmetrics-text; version=1.0.0; charset=utf-8");
  assert.ok((await open.text()).endsWith("# EOF\n"));
});

/** A port that was free a moment ago. */
async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as { port: number };
  await new Promise((resolve) => server.close(resolve));
  return port;
}

async function prometheus(context: TestContext, targets: Record<string, string>): Promise<string> {
  assert.ok(existsSync(PROMETHEUS), "scripts/setup.sh operations installs Prometheus");
  const folder = await mkdtemp(path.join(tmpdir(), "ternlight-prometheus-"));
  const jobs = Object.entries(targets).map(
    ([job, target]) =>
      `  - { job_name: ${job}, scrape_interval: 1s, scrape_timeout: 1s, static_configs: [{ targets: ["${target}"] }] }\n`,
  );
  await writeFile(path.join(folder, "prometheus.yml"), `scrape_configs:\n${jobs.join("")}`);
  const address = `127.0.0.1:${await freePort()}`;
  const child: ChildProcess = spawn(
    PROMETHEUS,
    [
      `--config.file=${folder}/prometheus.yml`,
      `--storage.tsdb.path=${folder}/data`,
      `--web.listen-address=${address}`,
      "--log.level=error",
    ],
    { stdio: "ignore" },
  );
  context.after(async () => {
    child.kill("SIGKILL");
    await once(child, "exit").catch(() => {});
    await rm(folder, { recursive: true, force: true });
  });
  return `http://${address}`;
}

/** The value that a query gives, as soon as there is one that is right. */
async function queried(url: string, query: string, expected: number): Promise<void> {
  let last: unknown;
  for (const end = Date.now() + 30_000; Date.now() < end; await new Promise((resolve) => setTimeout(resolve, 300))) {
    try {
      const response = await fetch(`${url}/api/v1/query?query=${encodeURIComponent(query)}`);
      last = await response.json();
      const [found] = (last as { data: { result: { value: [number, string] }[] } }).data.result;
      if (Number(found?.value[1]) === expected) return;
    } catch (error) {
      last = error;
    }
  }
  assert.fail(`${query} is not ${expected}: ${JSON.stringify(last)}`);
}

test("a real Prometheus scrapes a real server", async (context) => {
  const server = await serve(context, ["--metrics-dialect", "ternlight", "--log", "json"]);
  const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  const request = { ...ask, model: "ternlight-demo" };
  const post = (headers: Record<string, string> = {}) =>
    body(fetch(`${server.url}/v1/completions`, { method: "POST", body: JSON.stringify(request), headers }));
  await post({ traceparent });
  await post({ traceparent: "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01" });
  const url = await prometheus(context, { ternlight: server.url.replace("http://", "") });
  await queried(url, 'up{job="ternlight"}', 1);
  await queried(url, 'ternlight_requests_total{call="generate",outcome="length"}', 2);
  await queried(url, 'ternlight_generated_tokens_total{model="ternlight-demo"}', 24);
  await queried(url, 'ternlight_first_token_seconds_bucket{le="+Inf"} or ternlight_first_token_seconds_count', 2);

  const records = server
    .err()
    .split("\n")
    .filter(Boolean)
    .map((line) => JSON.parse(line) as RequestRecord);
  const [traced, other] = records.filter(({ path }) => path === "/v1/completions");
  assert.deepEqual(
    [traced!.traceId, traced!.spanId, traced!.sampled],
    ["0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", true],
  );
  assert.equal(other!.traceId, undefined, "a header that is not valid is ignored");
});

for (const stream of [false, true])
  test(`what was computed for a client that has gone is counted${stream ? ", streamed" : ""}`, async (context) => {
    const measured: Telemetry[] = [];
    const records: RequestRecord[] = [];
    const app = await served(
      context,
      {},
      // As a log would write it: what is added to a record later does not count.
      { onTelemetry: (one) => measured.push(one), onRequest: (record) => records.push({ ...record }) },
    );
    const gone = new AbortController();
    const much = { ...ask, n: 2, max_tokens: 500, stream, ignore_eos: true };
    const answer = app.post("/v1/completions", much, { signal: gone.signal });
    if (stream) {
      const reader = (await answer).body!.getReader();
      for (let events = 0; events < 3; events++) await reader.read();
      await reader.cancel();
    } else {
      await until(async () => {
        const { models } = await body(app.get("/status"));
        return models[0].usedTokens > 8;
      });
      gone.abort();
      await (await answer).text();
    }
    await until(() => records.some(({ path }) => path === "/v1/completions"));
    const { promptTokens, completionTokens } = records.find(({ path }) => path === "/v1/completions")!;
    assert.equal(promptTokens, 8);
    assert.ok(completionTokens! > 0 && completionTokens! < 1000, String(completionTokens));
    const outputs = measured.filter(({ attributes }) => attributes["gen_ai.token.type"] === "output");
    assert.equal(
      outputs.reduce((total, { value }) => total + value, 0),
      completionTokens,
    );
    const text = await (await app.get("/metrics")).text();
    assert.match(text, /^ternlight_requests_total\{model="demo",call="generate",outcome="stopped"\} 2$/m);
  });

test("measurements come under OpenTelemetry's names, with the trace", async (context) => {
  const measured: Telemetry[] = [];
  const app = await served(context, {}, { onTelemetry: (one) => measured.push(one) });
  const headers = { traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00" };
  await body(app.post("/v1/completions", ask, { headers }));
  assert.deepEqual(
    measured.map(({ name, unit }) => [name, unit]),
    [
      ["gen_ai.server.request.duration", "s"],
      ["gen_ai.server.time_to_first_token", "s"],
      ["gen_ai.server.time_per_output_token", "s"],
      ["gen_ai.client.token.usage", "{token}"],
      ["gen_ai.client.token.usage", "{token}"],
    ],
  );
  assert.ok(measured.every(({ value }) => value > 0));
  assert.deepEqual(
    measured.slice(3).map(({ value, attributes }) => [attributes["gen_ai.token.type"], value]),
    [
      ["input", 4],
      ["output", 12],
    ],
  );
  assert.deepEqual(measured[0]!.trace, {
    traceId: "0af7651916cd43dd8448eb211c80319c",
    spanId: "b7ad6b7169203331",
    sampled: false,
  });
  assert.equal(measured[0]!.attributes["gen_ai.request.model"], "demo");
  assert.equal(measured[0]!.attributes["gen_ai.operation.name"], "text_completion");
});
