/** Files and batches of the server: what becomes of good ones, and of everything that goes wrong. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { type Body, body, error, served } from "./support/app.ts";
import { type Server, serve } from "./support/command.ts";

const model = "ternlight-demo";
const ask = { model, prompt: "Once upon a time", max_tokens: 8, temperature: 0 };

async function folder(context: TestContext): Promise<string> {
  const dir = await mkdtemp(path.join(tmpdir(), "ternlight-batches-"));
  context.after(() => rm(dir, { recursive: true, force: true }));
  return dir;
}

/** A line whose answer is sampled with the line's own seed. */
const line = (i: number, more: object = {}, fields: object = {}) =>
  JSON.stringify({
    custom_id: `r${i}`,
    method: "POST",
    url: "/v1/completions",
    body: { ...ask, prompt: `Line ${i}`, temperature: 1, ...more },
    ...fields,
  });
const linesOf = (count: number, more: object = {}) =>
  Array.from({ length: count }, (_, i) => `${line(i, more)}\n`).join("");

class Client {
  readonly url: string;

  constructor({ url }: Server) {
    this.url = url;
  }

  get = (path: string) => fetch(`${this.url}${path}`);
  send = (path: string, body: unknown) =>
    fetch(`${this.url}${path}`, {
      method: "POST",
      body: JSON.stringify(body),
      headers: { "content-type": "application/json" },
    });

  upload(text: string, { name = "in.jsonl", purpose = "batch" } = {}): Promise<Response> {
    const form = new FormData();
    form.set("file", new Blob([text]), name);
    form.set("purpose", purpose);
    return fetch(`${this.url}/v1/files`, { method: "POST", body: form });
  }

  async begin(text: string, more: object = {}): Promise<Body> {
    const { id } = await body(this.upload(text));
    const fields = { input_file_id: id, endpoint: "/v1/completions", completion_window: "24h", ...more };
    return body(this.send("/v1/batches", fields));
  }

  batch = (id: string): Promise<Body> => body(this.get(`/v1/batches/${id}`));

  /** The batch as soon as something is true of it. */
  async until(id: string, holds: (batch: Body) => boolean): Promise<Body> {
    const end = Date.now() + 60_000;
    for (;;) {
      const batch = await this.batch(id);
      if (holds(batch)) return batch;
      assert.ok(Date.now() < end, JSON.stringify(batch));
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }

  status = (id: string, status: string) => this.until(id, (batch) => batch.status === status);
  /** The batch when so many lines are done. */
  done = (id: string, count: number) =>
    this.until(id, ({ status, request_counts: { completed } }) => status === "in_progress" && completed >= count);

  async text(id: string | null): Promise<string> {
    if (id === null) return "";
    const response = await this.get(`/v1/files/${id}/content`);
    assert.equal(response.status, 200);
    return response.text();
  }

  async lines(id: string | null): Promise<Body[]> {
    const text = await this.text(id);
    return text === ""
      ? []
      : text
          .trimEnd()
          .split("\n")
          .map((one) => JSON.parse(one));
  }

  /** The samples of a metric, by their labels. */
  async samples(name: string): Promise<Record<string, number>> {
    const text = await (await this.get("/metrics")).text();
    const found = text.matchAll(new RegExp(`^${name}({[^}]*})? (\\S+)$`, "gm"));
    return Object.fromEntries(Array.from(found, ([, labels = "", value]) => [labels, Number(value)]));
  }

  /** Both files of a batch, which have each line once. */
  async results({
    output_file_id,
    error_file_id,
    request_counts: counts,
  }: Body): Promise<{ out: Body[]; errors: Body[] }> {
    const [out, errors] = [await this.lines(output_file_id), await this.lines(error_file_id)];
    assert.deepEqual([out.length, errors.length], [counts.completed, counts.failed]);
    const ids = [...out, ...errors].map(({ custom_id: id }) => id);
    assert.deepEqual(new Set(ids), new Set(Array.from({ length: counts.total }, (_, i) => `r${i}`)));
    assert.equal(ids.length, counts.total);
    return { out, errors };
  }
}

const started = async (context: TestContext, dir: string, ...args: string[]) =>
  new Client(await serve(context, ["--batch-folder", dir, ...args]));

test("without a place for them, files and batches are a 404 that says so", async (context) => {
  const app = await served(context);
  for (const path of ["/v1/files", "/v1/files/x", "/v1/files/x/content", "/v1/batches", "/v1/batches/x"])
    assert.equal((await error(app.get(path), 404)).code, "batches_not_enabled", path);
  for (const path of ["/v1/files", "/v1/batches", "/v1/batches/x/cancel"])
    assert.equal((await error(app.post(path, {}), 404)).code, "batches_not_enabled", path);
});

test("a batch is checked, answered in order, and its results are files", async (context) => {
  const own = await started(context, await folder(context));
  const text = [line(0), line(1, { ...ask }), line(2, { top_p: 7 }), "", line(3)].join("\r\n");
  const file = await body(own.upload(text));
  assert.match(file.id, /^file-[0-9a-f]{32}$/);
  assert.deepEqual(
    { ...file, id: 0, created_at: 0 },
    {
      id: 0,
      object: "file",
      bytes: Buffer.byteLength(text),
      created_at: 0,
      filename: "in.jsonl",
      purpose: "batch",
      status: "processed",
    },
  );
  assert.deepEqual(await body(own.get(`/v1/files/${file.id}`)), file);
  assert.equal(await own.text(file.id), text);

  const metadata = { job: "nightly" };
  const made = { input_file_id: file.id, endpoint: "/v1/completions", completion_window: "24h", metadata };
  const begun = await body(own.send("/v1/batches", made));
  assert.match(begun.id, /^batch_[0-9a-f]{32}$/);
  assert.deepEqual([begun.object, begun.status, begun.errors], ["batch", "validating", null]);
  assert.equal(begun.expires_at - begun.created_at, 86_400);
  const ended = await own.status(begun.id, "completed");
  assert.deepEqual(ended.request_counts, { total: 4, completed: 3, failed: 1 });
  assert.deepEqual([ended.model, ended.metadata, ended.endpoint], [model, metadata, "/v1/completions"]);
  for (const at of ["in_progress_at", "finalizing_at", "completed_at"]) assert.ok(ended[at] >= ended.created_at, at);
  for (const at of ["failed_at", "expired_at", "cancelling_at", "cancelled_at"]) assert.equal(ended[at], null);

  const { out, errors } = await own.results(ended);
  assert.deepEqual(
    out.map(({ custom_id: id, response, error }) => [id, response.status_code, response.body.object, error]),
    ["r0", "r1", "r3"].map((id) => [id, 200, "text_completion", null]),
  );
  const live = await body(own.send("/v1/completions", ask));
  assert.equal(out[1].response.body.choices[0].text, live.choices[0].text);
  assert.deepEqual([errors[0].response.status_code, errors[0].response.body.error.param], [400, "top_p"]);

  const listed = await body(own.get("/v1/files"));
  assert.deepEqual(listed.data.map(({ purpose }: Body) => purpose).sort(), ["batch", "batch_output", "batch_output"]);
  assert.equal((await body(own.get("/v1/files?purpose=batch"))).data[0].id, file.id);
  const first = await body(own.get("/v1/files?limit=2"));
  assert.deepEqual([first.data.length, first.has_more, first.last_id], [2, true, first.data[1].id]);
  const rest = await body(own.get(`/v1/files?limit=2&after=${first.last_id}`));
  assert.deepEqual([rest.data.length, rest.has_more], [1, false]);
  assert.equal((await error(own.get("/v1/batches?limit=101"), 400)).param, "limit");
  assert.equal((await error(own.get("/v1/batches?after=x"), 400)).param, "after");
  assert.deepEqual((await body(own.get("/v1/batches"))).data, [ended]);
  assert.equal((await error(own.send(`/v1/batches/${ended.id}/cancel`, {}), 409)).code, "batch_not_cancellable");

  assert.deepEqual(await own.samples("ternlight_server_batches"), { '{status="completed"}': 1 });
  const kept = listed.data.reduce((sum: number, { bytes }: Body) => sum + bytes, 0);
  assert.deepEqual(
    [await own.samples("ternlight_server_files"), await own.samples("ternlight_server_file_bytes")],
    [{ "": 3 }, { "": kept }],
  );
  const removed = await fetch(`${own.url}/v1/files/${file.id}`, { method: "DELETE" });
  assert.deepEqual(await body(removed), { id: file.id, object: "file", deleted: true });
  assert.equal((await error(own.get(`/v1/files/${file.id}`), 404)).code, "file_not_found");
});

test("an input that is wrong fails the batch, and each of its lines is told", async (context) => {
  const client = await started(context, await folder(context));
  const faults = async (text: string) => {
    const { id } = await client.begin(text);
    const { errors, failed_at, output_file_id, error_file_id } = await client.status(id, "failed");
    assert.ok(failed_at > 0);
    assert.deepEqual([errors.object, output_file_id, error_file_id], ["list", null, null]);
    return errors.data.map(({ code, line, param }: Body) => [code, line, param]);
  };
  const wrong = [
    line(0),
    "{broken",
    line(0),
    line(3, {}, { url: "/v1/embeddings" }),
    line(4, {}, { url: "/v1/files" }),
    line(5, {}, { custom_id: undefined }),
    line(6, {}, { method: "GET" }),
    line(7, { model: "gpt-4" }),
    line(8, { model: undefined }),
    line(9, { stream: true }),
    JSON.stringify({ custom_id: "r10", prompt: "plain", model }),
  ];
  assert.deepEqual(await faults(wrong.join("\n")), [
    ["invalid_json_line", 2, null],
    ["duplicate_custom_id", 3, "custom_id"],
    ["invalid_url", 4, "url"],
    ["invalid_line", 5, "url"],
    ["missing_required_parameter", 6, "custom_id"],
    ["invalid_line", 7, "method"],
    ["mismatched_model", 8, "body.model"],
    ["missing_required_parameter", 9, "body.model"],
    ["invalid_line", 10, "stream"],
    ["missing_required_parameter", 11, "url"],
  ]);
  assert.deepEqual(await faults(" \n\n"), [["empty_file", null, null]]);
  assert.deepEqual(await faults(line(0, { model: "gpt-4" })), [["model_not_found", null, "body.model"]]);
  assert.equal((await faults("{\n".repeat(5000))).length, 100);
  const many = Array.from(
    { length: 50_001 },
    (_, i) => `{"custom_id":"${i}","url":"/v1/completions","body":{"model":"m"}}`,
  );
  assert.deepEqual((await faults(many.join("\n")))[0], ["too_many_requests", null, null]);

  const { id } = await body(client.upload(line(0)));
  const begin = (more: object) =>
    client.send("/v1/batches", { input_file_id: id, endpoint: "/v1/completions", completion_window: "24h", ...more });
  const refused: [object, string][] = [
    [{ input_file_id: "../../etc/passwd" }, "input_file_id"],
    [{ endpoint: "/v1/messages" }, "endpoint"],
    [{ completion_window: "15d" }, "completion_window"],
    [{ completion_window: "soon" }, "completion_window"],
    [{ metadata: { a: 1 } }, "metadata.a"],
    [{ metadata: Object.fromEntries(Array.from({ length: 17 }, (_, i) => [`${i}`, ""])) }, "metadata"],
    [{ output_expires_after: { anchor: "created_at", seconds: 3600 } }, "output_expires_after"],
  ];
  for (const [more, param] of refused) assert.equal((await error(begin(more), 400)).param, param);
});

test("uploads are bounded, and no name of a client's is a path", async (context) => {
  const dir = await folder(context);
  const client = await started(context, dir, "--max-upload", "100000");
  assert.equal((await error(client.upload("x".repeat(100_001)), 413)).code, "file_too_large");
  assert.equal((await error(client.upload("x".repeat(300_000)), 413)).code, "file_too_large");
  assert.equal((await body(client.upload("x".repeat(100_000)))).bytes, 100_000);
  assert.equal((await error(client.upload("x", { purpose: "fine-tune" }), 400)).param, "purpose");
  assert.equal((await error(client.upload(""), 400)).code, "empty_file");
  assert.equal((await error(client.send("/v1/files", {}), 415)).code, null);
  const raw = (text: string, headers: Record<string, string> = {}) =>
    fetch(`${client.url}/v1/files`, {
      method: "POST",
      body: text,
      headers: { "content-type": "multipart/form-data; boundary=b", ...headers },
    });
  const purpose = '--b\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nbatch\r\n';
  const file = (name: string) => `--b\r\ncontent-disposition: form-data; name="file"; ${name}\r\n\r\n{}\r\n`;
  const named = 'filename="a"';
  assert.equal((await body(raw(`${purpose}${file(named)}--b--\r\n`))).filename, "a");
  const wrong: [string, string | null][] = [
    [`${purpose}--b--\r\n`, "file"],
    [`${file(named)}--b--\r\n`, "purpose"],
    [`${purpose}${file(named)}${file(named)}--b--\r\n`, "file"],
    [`${purpose}${file(named)}`, null],
    [`${purpose}${file("filename*=UTF-8''%ff")}--b--\r\n`, null],
    [`${purpose}--b\r\n${"x".repeat(20_000)}\r\n--b--\r\n`, null],
    [`--b\r\ncontent-disposition: form-data; name="purpose"\r\n\r\n${"x".repeat(5000)}\r\n--b--\r\n`, null],
    [purpose.repeat(20), null],
    ["", null],
  ];
  for (const [text, param] of wrong) assert.equal((await error(raw(text), 400)).param, param, text.slice(0, 200));
  const origin = { origin: "http://evil.example" };
  assert.equal((await error(raw(`${purpose}${file(named)}--b--\r\n`, origin), 403)).code, "origin_not_allowed");

  assert.equal((await error(client.upload("{}", { name: "a\u0000" }), 400)).code, "invalid_form");
  const name = "../../../../tmp/evil.jsonl";
  const { id, filename } = await body(client.upload("{}", { name }));
  assert.equal(filename, name);
  for (const found of await readdir(path.join(dir, "files"))) assert.match(found, /^file-[0-9a-f]{32}\.jsonl?$/);
  await writeFile(path.join(dir, "secret.json"), "secret");
  for (const trick of [
    "..%2Fsecret",
    "..%2f..%2fsecret.json",
    `${id}%2F..%2F..%2Fsecret`,
    `${id}.json`,
    "file-",
    "%00",
  ]) {
    for (const path of [`/v1/files/${trick}`, `/v1/files/${trick}/content`, `/v1/batches/${trick}`])
      assert.equal((await client.get(path)).status, 404, path);
    assert.equal((await fetch(`${client.url}/v1/files/${trick}`, { method: "DELETE" })).status, 404, trick);
    assert.equal((await client.send(`/v1/batches/${trick}/cancel`, {})).status, 404, trick);
  }
});

test("a batch that is cancelled keeps what was done, and tells of the rest", async (context) => {
  const client = await started(context, await folder(context));
  const { id, input_file_id: input } = await client.begin(linesOf(400, { max_tokens: 60 }));
  const behind = await client.begin(linesOf(3));
  await client.done(id, 3);
  assert.equal((await client.batch(behind.id)).status, "validating");
  const lines = await client.samples("ternlight_server_batch_lines");
  const at = (state: string) => lines[`{state="${state}"}`]!;
  assert.deepEqual([at("left") + at("completed"), at("failed"), at("completed") >= 3], [400, 0, true]);
  const used = await fetch(`${client.url}/v1/files/${input}`, { method: "DELETE" });
  assert.equal((await error(used, 409)).code, "file_in_use");
  const cancel = (one: string) => body(client.send(`/v1/batches/${one}/cancel`, {}));
  // One that waits for its turn ends without it.
  assert.ok(["cancelling", "cancelled"].includes((await cancel(behind.id)).status));
  const waited = await client.status(behind.id, "cancelled");
  assert.deepEqual(waited.request_counts, { total: 3, completed: 0, failed: 3 });
  assert.equal((await client.batch(id)).status, "in_progress");

  assert.equal((await cancel(id)).status, "cancelling");
  const ended = await client.status(id, "cancelled");
  assert.ok(ended.cancelled_at >= ended.cancelling_at);
  const { out, errors } = await client.results(ended);
  assert.ok(out.length >= 3 && errors.length > 0, `${out.length} and ${errors.length}`);
  for (const { response, error } of errors) assert.deepEqual([response, error.code], [null, "batch_cancelled"]);
  assert.equal((await cancel(id)).status, "cancelled");
});

test("a batch ends with its completion window", async (context) => {
  const client = await started(context, await folder(context));
  const { id } = await client.begin(linesOf(3000, { max_tokens: 100 }), { completion_window: "2s" });
  const ended = await client.status(id, "expired");
  assert.ok(ended.expired_at >= ended.expires_at);
  const { out, errors } = await client.results(ended);
  assert.ok(out.length > 0 && errors.length > 0, `${out.length} and ${errors.length}`);
  for (const { response, error } of errors) assert.deepEqual([response, error.code], [null, "batch_expired"]);
});

test("a server that was stopped or killed goes on, to the same bytes", async (context) => {
  const dir = await folder(context);
  const start = () => serve(context, ["--batch-folder", dir]);
  const text = linesOf(240, { max_tokens: 24 });
  let server = await start();
  const { id, input_file_id: input } = await new Client(server).begin(text);
  await new Client(server).done(id, 10);
  server.child.kill("SIGTERM");
  assert.equal(await server.ended, 0);
  server = await start();
  await new Client(server).done(id, 60);
  server.child.kill("SIGKILL");
  await server.ended;
  server = await start();
  const client = new Client(server);
  const ended = await client.status(id, "completed");
  await client.results(ended);
  assert.equal(await client.text(input), text);
  const undisturbed = await client.status((await client.begin(text)).id, "completed");
  assert.equal(await client.text(ended.output_file_id), await client.text(undisturbed.output_file_id));
  const second = await serve(context, ["--batch-folder", dir]).catch((error) => String(error));
  assert.match(String(second), /written by another run/);
});

test("a batch goes on under a clock that was set back, as of a machine that starts without one", async (context) => {
  const dir = await folder(context);
  const start = () => serve(context, ["--batch-folder", dir]);
  const server = await start();
  const { id } = await new Client(server).begin(linesOf(60, { max_tokens: 24 }));
  await new Client(server).done(id, 1);
  server.child.kill("SIGTERM");
  assert.equal(await server.ended, 0);
  // What it is to the clock is 30 days more, which no timer takes.
  const file = path.join(dir, "batches", `${id}.json`);
  const record = JSON.parse(await readFile(file, "utf8"));
  record.batch.expires_at += 30 * 86_400;
  await writeFile(file, JSON.stringify(record));
  const client = new Client(await start());
  const ended = await client.until(id, ({ status }) => ["completed", "expired"].includes(status));
  assert.deepEqual([ended.status, ended.request_counts.completed], ["completed", 60]);
});

test("batches of one second keep their order over a restart", async (context) => {
  const dir = await folder(context);
  const server = await serve(context, ["--batch-folder", dir]);
  const client = new Client(server);
  const { id: input } = await body(client.upload(linesOf(1)));
  const fields = { input_file_id: input, endpoint: "/v1/completions", completion_window: "24h" };
  const ids: string[] = [];
  for (let i = 0; i < 8; i++) ids.push((await body(client.send("/v1/batches", fields))).id);
  server.child.kill("SIGKILL");
  await server.ended;
  // Records of before have no number, and came first.
  for (const id of ids.slice(0, 2)) {
    const file = path.join(dir, "batches", `${id}.json`);
    const { number, batch, ...record } = JSON.parse(await readFile(file, "utf8"));
    assert.ok(number > 0);
    batch.created_at -= 10 - ids.indexOf(id);
    await writeFile(file, JSON.stringify({ batch, ...record }));
  }
  const next = await started(context, dir);
  ids.push((await body(next.send("/v1/batches", fields))).id);
  const { data } = await body(next.get("/v1/batches"));
  assert.deepEqual(
    data.map(({ id }: Body) => id),
    ids.toReversed(),
  );
});

test("what a full disk does not take is a 507", async (context) => {
  const dir = await mkdtemp(path.join(tmpdir(), "ternlight-small-"));
  try {
    execFileSync("mount", ["-t", "tmpfs", "-o", "size=256k", "tmpfs", dir], { stdio: "pipe" });
  } catch {
    return context.skip("a file system of 256 kB cannot be mounted here: mount needs root");
  }
  context.after(async () => {
    execFileSync("umount", ["-l", dir]);
    await rm(dir, { recursive: true });
  });
  const client = await started(context, dir);
  const { id } = await body(client.upload(linesOf(1)));
  await assert.rejects(writeFile(path.join(dir, "fill"), Buffer.alloc(2 ** 19)), { code: "ENOSPC" });
  const fields = { input_file_id: id, endpoint: "/v1/completions", completion_window: "24h" };
  for (const [what, refused] of [
    ["batch", client.send("/v1/batches", fields)],
    ["file", client.upload(linesOf(1))],
  ] as const) {
    const { code, message } = await error(refused, 507);
    assert.deepEqual([code, message], ["storage_failed", `the ${what} cannot be stored: ENOSPC`]);
  }
  assert.deepEqual((await body(client.get("/v1/batches"))).data, []);
  await rm(path.join(dir, "fill"));
  await client.status((await body(client.send("/v1/batches", fields))).id, "completed");
});

test("lines begin only while no client's request runs", async (context) => {
  const client = await started(context, await folder(context), "--max-requests", "2");
  const { id } = await client.begin(linesOf(2000, { max_tokens: 30 }));
  await client.done(id, 3);
  let asking = true;
  // Two at once, which are as many as there may be: lines take no place among them.
  const loop = async () => {
    while (asking) await body(client.send("/v1/completions", { ...ask, max_tokens: 100, ignore_eos: true }));
  };
  const loops = [loop(), loop()];
  // What was under way ends.
  await new Promise((resolve) => setTimeout(resolve, 1500));
  const before = await client.batch(id);
  await new Promise((resolve) => setTimeout(resolve, 1000));
  const after = await client.batch(id);
  asking = false;
  await Promise.all(loops);
  assert.equal(after.status, "in_progress");
  assert.equal(after.request_counts.completed, before.request_counts.completed);
  await client.done(id, after.request_counts.completed + 5);
});

test("a running line gives its place to a client within steps, and has the same answer at last", async (context) => {
  // One place: every line that runs is in a client's way.
  const client = await started(context, await folder(context), "--max-sequences", "1");
  const first = async () => {
    const begun = performance.now();
    const response = await client.send("/v1/completions", { ...ask, stream: true, ignore_eos: true });
    const reader = response.body!.getReader();
    await reader.read();
    const ms = performance.now() - begun;
    while (!(await reader.read()).done);
    return ms;
  };
  // The first one warms up.
  await first();
  const idle = Math.max(await first(), await first());
  const long = { max_tokens: 900, ignore_eos: true };
  const begun = performance.now();
  const alone = await client.begin(linesOf(2, long));
  const whole = await client.status(alone.id, "completed");
  // Of one line, as the batch had nobody beside it.
  const lineMs = (performance.now() - begun) / 2;
  const beside = await client.begin(linesOf(2, long));
  const times: number[] = [];
  for (let i = 0; i < 3; i++) {
    await client.until(beside.id, ({ status }) => status === "in_progress");
    // A line runs again a moment after the last client has gone.
    await new Promise((resolve) => setTimeout(resolve, lineMs / 3));
    times.push(await first());
  }
  const ended = await client.status(beside.id, "completed");
  const worst = Math.max(...times);
  assert.ok(worst < 5 * idle + lineMs / 4, `${times} ms beside a batch, ${idle} ms idle, ${lineMs} ms a line`);
  assert.equal(await client.text(ended.output_file_id), await client.text(whole.output_file_id));
});
