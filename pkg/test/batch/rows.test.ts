/** The rows of inputs: lines, CSV and templates, plain and packed. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { type TestContext, test } from "node:test";
import zlib from "node:zlib";
import { openInput } from "../../src/batch/input.ts";
import { MAX_LINE, readRows } from "../../src/batch/rows.ts";
import { Template } from "../../src/batch/template.ts";
import { readBatchLine } from "../../src/openai/batch.ts";
import { ApiError } from "../../src/openai/errors.ts";
import type { Line } from "../../src/server/serving.ts";

async function written(context: TestContext, name: string, bytes: Uint8Array | string): Promise<string> {
  const dir = await mkdtemp(path.join(tmpdir(), "ternlight-batch-"));
  context.after(() => rm(dir, { recursive: true, force: true }));
  await writeFile(path.join(dir, name), bytes);
  return path.join(dir, name);
}

async function rowsOf(file: string, template?: string): Promise<Line[]> {
  const all: Line[] = [];
  const blocks = readRows(await openInput(file), template === undefined ? null : new Template(template));
  for await (const block of blocks) all.push(...block);
  return all;
}

const texts = (rows: Line[]) => rows.map(({ text }) => text);

test("lines are numbered without blank ones, whatever ends them", async (context) => {
  const file = await written(context, "a.jsonl", '\uFEFF{"a":1}\r\n\n  \n{"b":2}\n{"c":"ü"}');
  const rows = await rowsOf(file);
  assert.deepEqual(
    rows,
    ['{"a":1}', '{"b":2}', '{"c":"ü"}'].map((text, index) => ({ index, text })),
  );
});

test("packed inputs are known by their beginning, of several parts too", async (context) => {
  const lines = Array.from({ length: 20_000 }, (_, i) => `{"prompt":"${i}"}\n`).join("");
  const half = lines.indexOf("\n", lines.length / 2) + 1;
  const parts = [lines.slice(0, half), lines.slice(half)].map((text) => Buffer.from(text));
  for (const pack of [zlib.gzipSync, zlib.zstdCompressSync]) {
    const file = await written(context, "a.bin", Buffer.concat(parts.map((part) => pack(part))));
    assert.equal(texts(await rowsOf(file)).join("\n"), lines.trimEnd());
  }
});

test("Zstandard is read where the runtime does not know it", async (context) => {
  const node20 = new URL("../hosts/node_modules/node20/bin/node", import.meta.url).pathname;
  const text = Array.from({ length: 5000 }, (_, i) => `{"prompt":"${i}"}\n`).join("");
  const packed = zlib.zstdCompressSync(Buffer.from(text));
  const program = `import { readLines } from ${JSON.stringify(new URL("../../dist/batch.js", import.meta.url))};
    let count = 0;
    for await (const rows of readLines(process.argv[1])) count += rows.length;
    console.log(process.versions.node.split(".")[0], count);`;
  const run = (file: string) =>
    execFileSync(node20, ["--input-type=module", "-e", program, file], { encoding: "utf8", stdio: "pipe" });
  assert.equal(run(await written(context, "a.zst", packed)).trim(), "20 5000");
  const cut = await written(context, "cut.zst", packed.subarray(0, packed.length - 20));
  assert.throws(() => run(cut), /is no whole Zstandard/);
});

test("what is cut off, missing or a folder is a typed error", async (context) => {
  const packed = zlib.gzipSync(Buffer.from('{"prompt":"a"}\n'.repeat(1000)));
  const cut = await written(context, "cut.gz", packed.subarray(0, packed.length - 12));
  await assert.rejects(rowsOf(cut), { code: "Damaged" });
  await assert.rejects(rowsOf("/none.jsonl"), { code: "NotFound" });
  await assert.rejects(rowsOf(path.dirname(cut)), { code: "Unreadable" });
});

test("a line that is too long, or no UTF-8, is an error of its own", async (context) => {
  const long = Buffer.alloc(MAX_LINE + 1, 0x61);
  const bytes = Buffer.concat([
    Buffer.from("{}\n"),
    long,
    Buffer.from('\n{"a":"'),
    Buffer.from([0xff]),
    Buffer.from('"}\n{}'),
  ]);
  const rows = await rowsOf(await written(context, "a.jsonl", bytes));
  assert.deepEqual(
    rows.map(({ fault }) => fault?.code),
    [undefined, "line_too_large", "invalid_json_line", undefined],
  );
});

test("a packed input that grows without end is read in pieces", async (context) => {
  const zeros = Buffer.alloc(64 * 2 ** 20);
  const short = Buffer.alloc(2 ** 20, "{}\n");
  for (const pack of [zlib.gzipSync, zlib.zstdCompressSync]) {
    // Members in a row are one input: 512 MiB of a line without end, then 2 MiB of short ones, in less than 1 MB.
    const bytes = Buffer.concat([
      ...Array(8).fill(pack(zeros)),
      pack(Buffer.from("\n")),
      ...Array(2).fill(pack(short)),
    ]);
    assert.ok(bytes.length < 2 ** 20, String(bytes.length));
    const file = await written(context, "bomb", bytes);
    const before = process.memoryUsage().rss;
    let [lines, faults, most] = [0, 0, 0];
    for await (const block of readRows(await openInput(file), null)) {
      lines += block.length;
      faults += block.filter(({ fault }) => fault?.code === "line_too_large").length;
      most = Math.max(most, process.memoryUsage().rss - before);
    }
    assert.ok(lines > 600_000 && faults === 1, `${lines} lines, ${faults} faults`);
    assert.ok(most < 300 * 2 ** 20, `${most} bytes`);
  }
});

test("rows of CSV become requests, and no value anything but text", async (context) => {
  const csv = 'custom_id,text,n\nfirst,"says ""no"",\nthen {{n}}",7\n,plain,"""}],""seed"":1"\n';
  const file = await written(context, "a.csv", csv);
  assert.deepEqual(
    texts(await rowsOf(file, "Is {{ text }} good?")).map((text) => JSON.parse(text)),
    [{ custom_id: "first", prompt: 'Is says "no",\nthen {{n}} good?' }, { prompt: "Is plain good?" }],
  );
  const chat = '{"messages":[{"role":"user","content":"{{n}}"}],"max_tokens":3}';
  assert.deepEqual(JSON.parse(texts(await rowsOf(file, chat))[1]!), {
    messages: [{ role: "user", content: '"}],"seed":1' }],
    max_tokens: 3,
  });
  await assert.rejects(rowsOf(file), /--template/);
  await assert.rejects(rowsOf(file, "{{none}}"), /the column none; .* has custom_id, text, n/);
  await assert.rejects(rowsOf(file, "no column"), /names no column/);
  const broken = await written(context, "b.csv", 'text\n"never closed\n');
  await assert.rejects(rowsOf(broken, "{{text}}"), { code: "BadValue" });
  const short = await written(context, "c.csv", "a,text\n1\n2,two\n");
  assert.deepEqual(
    (await rowsOf(short, "{{text}}")).map(({ fault }) => fault?.code),
    ["missing_column", undefined],
  );
});

test("CSV that is not UTF-8 is refused by its line", async (context) => {
  const refused = async (bytes: Uint8Array, line: number) => {
    const file = await written(context, "a.csv", bytes);
    const message = `line ${line} of ${file} is not UTF-8`;
    await assert.rejects(rowsOf(file, "{{name}}"), { code: "BadValue", message });
  };
  const text = 'name,n\n"Ada\nLovelace",1\nJürgen,2\nBo,3\n';
  await refused(Buffer.from(text, "latin1"), 4);
  await refused(Buffer.from(`\uFEFF${text}`, "utf16le"), 1);
  await refused(Buffer.from(`\uFEFF${text}`, "utf16le").swap16(), 1);
  // A character that is cut off by the end, behind more than is read at once.
  const long = `name\n${"ü\n".repeat(50_000)}`;
  await refused(Buffer.concat([Buffer.from(long), Buffer.from("ü").subarray(0, 1)]), 50_002);
  assert.equal((await rowsOf(await written(context, "b.csv", `\uFEFF${long}`), "{{name}}")).length, 50_000);
});

test("a template fills lines of JSON, too", async (context) => {
  const file = await written(context, "a", '{"text":"a","custom_id":5}\n{"other":1}\nnot json\n');
  const rows = await rowsOf(file, "<{{text}}>");
  assert.equal(rows[0]!.text, '{"custom_id":"5","prompt":"<a>"}');
  assert.equal(rows[1]!.fault?.code, "missing_column");
  assert.equal(rows[2]!.text, "not json");
});

test("lines are read in each of their shapes, and what is wrong is told by its place", () => {
  const body = { model: "any", messages: [] };
  const chat = { custom_id: "a", method: "POST", url: "/v1/chat/completions", body };
  const read = (line: unknown) => readBatchLine(typeof line === "string" ? line : JSON.stringify(line), 6);
  assert.deepEqual(read(chat), { customId: "a", request: { url: chat.url, body: { ...body, seed: 6 } } });
  assert.deepEqual(read({ prompt: "p", n: 3 }), {
    customId: "line-7",
    request: { url: "/v1/completions", body: { prompt: "p", n: 3, seed: 18 } },
  });
  assert.deepEqual(read({ prompt: "p", seed: 2 }).request, { url: "/v1/completions", body: { prompt: "p", seed: 2 } });
  const embed = { custom_id: "a", method: "POST", url: "/v1/embeddings", body: { input: "x" } };
  assert.deepEqual(read(embed).request, { url: "/v1/embeddings", body: { input: "x" } });
  const wrong: [unknown, string | null][] = [
    ["{", null],
    ["[]", null],
    [{ ...chat, custom_id: 5 }, "custom_id"],
    [{ ...chat, custom_id: "x".repeat(600) }, "custom_id"],
    [{ ...chat, method: "GET" }, "method"],
    [{ ...chat, url: "/v1/audio" }, "url"],
    [{ ...chat, body: [] }, "body"],
    [{ ...chat, body: { ...body, stream: true } }, "stream"],
    [{ model: "m" }, "url"],
  ];
  for (const [line, param] of wrong) {
    const { request } = read(line);
    assert.ok(request instanceof ApiError, JSON.stringify(line));
    assert.equal(request.param, param, JSON.stringify(line));
    assert.equal(request.status, 400);
  }
});
