/** `run --prompts`: answers in order, each as alone, on from where a run was cut off. */

import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { writeText } from "../../src/cli/file.ts";
import { DEMO, done, failure, json, start, ternlight } from "./support/ternlight.ts";

async function folder(context: TestContext): Promise<string> {
  const made = await mkdtemp(path.join(tmpdir(), "ternlight-prompts-"));
  context.after(() => rm(made, { recursive: true, force: true }));
  return made;
}

const lines = async (file: string) =>
  (await readFile(file, "utf8"))
    .split("\n")
    .filter(Boolean)
    .map((line) => JSON.parse(line));
const flags = ["--threads", "1", "--temp", "0", "-n", "12"];

test("each line gets the answer that it gets alone, in order, with options of its own", async (context) => {
  const at = await folder(context);
  const [input, out] = [path.join(at, "in.jsonl"), path.join(at, "out.jsonl")];
  const prompts = [
    "Once upon a time",
    { prompt: "The king", maxTokens: 30, id: "long" },
    { ids: [2343, 821], maxTokens: 3 },
    { messages: [{ role: "user", content: "Once upon a time" }], stop: " man" },
    // Within JSON this ends no line.
    { prompt: "The king\u2028", maxTokens: 3 },
    { ids: Array(600).fill(5), truncate: "left", maxTokens: 2, logprobs: 1, ignoreEos: true },
  ];
  await writeFile(input, `${prompts.map((line) => JSON.stringify(line)).join("\n\n")}\n`);
  const template = "{% for message in messages %}{{ message.content }}{% endfor %}";
  await done("run", DEMO, ...flags, "--prompts", input, "--out", out, "--chat-template", template);
  const found = await lines(out);
  assert.deepEqual(
    found.map(({ index, id, tokens }) => [index, id, tokens.length]),
    [
      [0, undefined, 12],
      [1, "long", 30],
      [2, undefined, 3],
      [3, undefined, 3],
      [4, undefined, 3],
      [5, undefined, 2],
    ],
  );
  const alone = await json("run", DEMO, ...flags, "-p", "Once upon a time");
  assert.equal(found[0].text, alone.text);
  assert.deepEqual(found[0].tokens, alone.tokens);
  assert.deepEqual([found[3].text, found[3].stopText], [" there lived a", " man"]);
  assert.ok(found[5].truncatedTokens > 88 && found[5].logprobs[1].top.length === 1, JSON.stringify(found[5]));
  const usual = ["index", "text", "tokens", "finishReason", "repetitionScore"];
  assert.deepEqual(Object.keys(found[0]).sort(), usual.sort(), "no times, and nothing that is not there");
});

test("a run that was cut off goes on, and ends with the same bytes", async (context) => {
  const at = await folder(context);
  const [input, out, other] = ["in.jsonl", "out.jsonl", "other.jsonl"].map((name) => path.join(at, name)) as [
    string,
    string,
    string,
  ];
  const prompts = Array.from({ length: 30 }, (_, i) => JSON.stringify({ prompt: `Once upon a time ${i}`, id: i }));
  await writeFile(input, prompts.join("\n"));
  const sampled = ["--threads", "1", "--seed", "5", "-n", "6", "--max-sequences", "3"];
  await done("run", DEMO, ...sampled, "--prompts", input, "--out", out);
  const whole = await readFile(out, "utf8");
  assert.deepEqual(
    (await lines(out)).map(({ id }) => id),
    Array.from({ length: 30 }, (_, i) => i),
  );
  // Nine whole lines, and a part of the tenth.
  const nine = whole.split("\n").slice(0, 9).join("\n").length + 1;
  await writeFile(other, whole.slice(0, nine + 25));
  const { stderr } = await done("run", DEMO, ...sampled, "--prompts", input, "--out", other);
  assert.match(stderr, /21 answers at .*, 0 failed, 9 were there/);
  assert.equal(await readFile(other, "utf8"), whole);
  await done("run", DEMO, ...sampled, "--prompts", input, "--out", other);
  assert.equal(await readFile(other, "utf8"), whole, "nothing is left to do");
});

test("a line that is wrong is told in its place, and the others are answered", async (context) => {
  const at = await folder(context);
  const input = path.join(at, "in.jsonl");
  const wrong = ["{", "5", "[]", '{"text":"a"}', '{"prompt":"a","ids":[1]}', '{"prompt":"a","maxToken":5}'];
  await writeFile(input, [...wrong, JSON.stringify({ ids: Array(9000).fill(5) }), '"Once"'].join("\n"));
  const { status, stdout, stderr } = await ternlight("run", DEMO, ...flags, "--prompts", input);
  assert.equal(status, 1, stderr);
  const found = stdout
    .split("\n")
    .filter(Boolean)
    .map((line) => JSON.parse(line));
  assert.deepEqual(
    found.map(({ index, error }) => [index, error?.code]),
    [...wrong.map((_, i) => [i, "InvalidArgument"]), [6, "ContextFull"], [7, undefined]],
  );
  assert.match(found[5].error.message, /maxTokens/);
  assert.match(stderr, /7 failed/);
});

test("a line of more than 16 MiB is not kept, and the one behind it is answered", async (context) => {
  const at = await folder(context);
  const input = path.join(at, "in.jsonl");
  await writeFile(input, [JSON.stringify("a".repeat(17 * 2 ** 20)), '"Once"'].join("\n"));
  const { status, stdout, stderr } = await ternlight("run", DEMO, ...flags, "--prompts", input);
  assert.equal(status, 1, stderr);
  const codes = stdout
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line).error?.code);
  assert.deepEqual(codes, ["TooLarge", undefined]);
});

test("what does not go with a file of prompts is refused", async (context) => {
  const input = path.join(await folder(context), "in.jsonl");
  assert.match((await failure(2, "run", DEMO, "-p", "a", "--out", input)).message, /--out belongs to --prompts/);
  assert.match((await failure(2, "run", DEMO, "-p", "a", "--prompts", input)).message, /-p does not go/);
  const { status, stderr } = await ternlight("run", DEMO, "--prompts", input);
  assert.equal(status, 1);
  assert.match(stderr, /NotFound: --prompts: ENOENT/);
});

test("TERNLIGHT_JSON is left aside for a file of prompts, and --json is refused", async (context) => {
  const input = path.join(await folder(context), "in.jsonl");
  await writeFile(input, '{"prompt":"Once","maxTokens":2}\n');
  const { status, stdout, stderr } = await start(
    ["run", DEMO, "--prompts", input],
    ["env", "TERNLIGHT_JSON=1", process.execPath],
  ).ended;
  assert.equal(status, 0, stderr);
  assert.equal(JSON.parse(stdout).index, 0);
  assert.match((await failure(2, "run", DEMO, "--prompts", input)).message, /--json does not go/);
});

test("a file that holds something else is left as it is", async (context) => {
  const at = await folder(context);
  const [input, out] = [path.join(at, "in.jsonl"), path.join(at, "out.jsonl")];
  await writeFile(input, '"Once upon a time"\n');
  for (const text of [
    "my notes, line one\nand two",
    "{}\n",
    '{"index":1,"text":""}\n',
    '{"index":0,"text":""}\n[1]\n',
    "x",
  ]) {
    await writeFile(out, text);
    const { status, stderr } = await ternlight("run", DEMO, ...flags, "--prompts", input, "--out", out);
    assert.equal(status, 1, text);
    assert.match(stderr, /Exists: --out: .*something else than answers of an earlier run/);
    assert.equal(await readFile(out, "utf8"), text);
  }
  const own = await ternlight("run", DEMO, ...flags, "--prompts", input, "--out", input);
  assert.equal(own.status, 1);
  assert.equal(await readFile(input, "utf8"), '"Once upon a time"\n');
});

test("small files of a command replace those of its kind alone", async (context) => {
  const file = path.join(await folder(context), "x");
  await writeText("--csv", file, "rate,users\n1,2\n");
  await writeText("--csv", file, "rate,users\n3,4\n");
  assert.equal(await readFile(file, "utf8"), "rate,users\n3,4\n");
  await assert.rejects(writeText("--plot", file, "<svg></svg>"), { code: "Exists" });
  await assert.rejects(
    writeText("--calibrate", file, "{}", async () => JSON.parse("{")),
    { code: "Exists" },
  );
  assert.equal(await readFile(file, "utf8"), "rate,users\n3,4\n");
  await writeText("--csv", "/dev/null", "a,b");
});

test("a session is kept in a regular file alone", async () => {
  const { status, stderr } = await ternlight("run", DEMO, "-p", "a", "-n", "1", "--session", "/dev/zero");
  assert.equal(status, 1);
  assert.match(stderr, /no regular file/);
});

test("prompts that cannot be read and answers that cannot be written end the run with the reason", async (context) => {
  const folderOnly = await folder(context);
  const unread = await ternlight("run", DEMO, "--prompts", folderOnly);
  assert.equal(unread.status, 1);
  assert.match(unread.stderr, /NotFound: --prompts: EISDIR/);
  const input = path.join(folderOnly, "in.jsonl");
  await writeFile(input, JSON.stringify("Once upon a time"));
  const full = await ternlight("run", DEMO, ...flags, "--prompts", input, "--out", "/dev/full");
  assert.equal(full.status, 1);
  assert.match(full.stderr, /Unwritable: --out: ENOSPC/);
});
