/** Files of text: UTF-8 and nothing else, with or without a byte order mark. */

import assert from "node:assert/strict";
import path from "node:path";
import { test } from "node:test";
import { folderOf } from "../source/support/models.ts";
import { DEMO, done, failure, json, ternlight } from "./support/ternlight.ts";

const TEXT = "Once upon a time there was a king who had three sons. ".repeat(20);
const MARK = "\ufeff";
const utf8 = (text: string) => new TextEncoder().encode(text);
const utf16 = (text: string) => new Uint8Array(Buffer.from(`${MARK}${text}`, "utf16le"));
const line = JSON.stringify({ text: TEXT });
const task = JSON.stringify({ query: "Once upon a", choices: ["time", "king"], gold: 0 });

test("a text in another encoding is refused by every command", async (context) => {
  const folder = await folderOf(context, {
    "text.txt": utf8(TEXT),
    "wide.txt": utf16(TEXT),
    "wide.jsonl": utf16(`${line}\n`),
    "tasks.jsonl": utf16(`${task}\n`),
    "latin.txt": Uint8Array.of(...utf8(TEXT), 0xe9, 0x20),
  });
  const at = (name: string) => path.join(folder, name);
  const commands = [
    ["perplexity", DEMO, at("latin.txt")],
    ["quality", DEMO, at("wide.txt")],
    ["quality", DEMO, at("latin.txt")],
    ["quality", DEMO, at("text.txt"), "--tasks", at("tasks.jsonl")],
    ["calibrate", DEMO, "--dataset", at("wide.jsonl"), "--output-dir", at("maps")],
    ["prune", DEMO, "--calibration-data", at("wide.txt"), "--target-layers", "5", "--output", at("out.gguf")],
    ["slice", DEMO, "--text", at("wide.txt"), "--keep", "2048", "--output", at("out.gguf")],
  ];
  for (const args of commands) {
    const { code, message, detail } = await failure(1, ...args);
    assert.deepEqual([code, /is not UTF-8$/.test(message)], ["BadValue", true], `${args.join(" ")}: ${message}`);
    assert.ok(args.includes(String(detail.file)), JSON.stringify(detail));
  }
});

test("a byte order mark at the beginning is no part of the text", async (context) => {
  const [prompt, budget] = ['"Once upon a time"\n', '{"limits":[]}'];
  const files = { "text.txt": TEXT, "tasks.jsonl": `${task}\n`, "data.jsonl": `${line}\n`, "prompts.jsonl": prompt };
  const folder = await folderOf(context, {
    ...Object.fromEntries(Object.entries(files).map(([name, text]) => [name, utf8(text)])),
    ...Object.fromEntries(Object.entries(files).map(([name, text]) => [`marked.${name}`, utf8(MARK + text)])),
    "budget.json": utf8(MARK + budget),
  });
  const both = (name: string) => ["", "marked."].map((mark) => path.join(folder, mark + name));
  const [plain, marked] = await Promise.all(both("text.txt").map((file) => json("perplexity", DEMO, file)));
  assert.deepEqual(marked, plain);
  const answers = both("prompts.jsonl").map((file) => done("run", DEMO, "--prompts", file, "-n", "4", "--temp", "0"));
  const [one, other] = await Promise.all(answers);
  assert.equal(other!.stdout, one!.stdout);
  const [text, tasks] = [both("text.txt")[1]!, both("tasks.jsonl")[1]!];
  const told = await json("quality", DEMO, text, "--kv", "f32", "--tokens", "32", "--tasks", tasks);
  assert.equal(told.rows[0].tasks.count, 1);
  const few = ["--calibration-samples", "2", "--calibration-tokens", "32", "--output-dir", path.join(folder, "maps")];
  await done("calibrate", DEMO, "--dataset", both("data.jsonl")[1]!, ...few);
  assert.match((await failure(1, "bench", "check", path.join(folder, "budget.json"))).message, /a list of limits/);
});

test("a prompt that is not UTF-8 is told in its place", async (context) => {
  const bytes = Uint8Array.of(...utf8('"a'), 0xff, ...utf8('"\n"Once"\n'));
  const folder = await folderOf(context, { "in.jsonl": bytes });
  const { status, stdout } = await ternlight("run", DEMO, "--prompts", path.join(folder, "in.jsonl"), "-n", "4");
  const [first, second] = stdout
    .trim()
    .split("\n")
    .map((one) => JSON.parse(one));
  assert.deepEqual([status, first.error, second.index], [1, { code: "BadValue", message: "the line is not UTF-8" }, 1]);
});
