/** The table of settings and the scores of multiple-choice questions. */

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { readFile, stat } from "node:fs/promises";
import path from "node:path";
import { test } from "node:test";
import { type EngineError, load } from "ternlight";
import { type QualityRow, quality, readTasks, scoreTasks, slice } from "ternlight/quality";
import { withFront } from "../../src/quality/measure.ts";
import { toBlob } from "../../src/quality/new_gguf.ts";
import { scoreChoices } from "../../src/quality/tasks.ts";
import { done, json, ternlight } from "../cli/support/ternlight.ts";
import { folderOf, goldenFile, goldenPath } from "../source/support/models.ts";
import { demoText, trained } from "./support/craft.ts";

const demo = new URL("../../models/ternlight-demo/", import.meta.url);
const text = () => demoText().slice(0, 4000);

test("perplexity is the model's own, and the reference is compared with itself", async () => {
  const { rows, reference, window } = await quality(demo, text(), { kv: ["f32", "q8", "q4"], window: 256 });
  const model = await load(demo, { kvCacheType: "f32" });
  const own = await model.perplexity(text(), { window: 256 });
  await model.close();
  const [f32, q8, q4] = rows;
  assert.equal(window, 256);
  assert.equal(f32!.tokens, own.tokens);
  assert.ok(Math.abs(f32!.perplexity / own.perplexity - 1) < 1e-6);
  assert.equal(reference.perplexity, f32!.perplexity);
  assert.deepEqual([f32!.kl, f32!.sameWinner], [0, 1]);
  assert.ok(q8!.kl! > 0 && q4!.kl! > 5 * q8!.kl!, `${q8!.kl} ${q4!.kl}`);
  assert.ok(q4!.sameWinner! < q8!.sameWinner! && q4!.sameWinner! > 0.8);
  assert.ok(q4!.memory < q8!.memory && q8!.memory < f32!.memory);
  for (const { perplexity, interval, promptPerSecond, predictedPerSecond, nll } of rows) {
    assert.ok(interval![0] < perplexity && perplexity < interval![1]);
    assert.ok(Math.abs(Math.log(perplexity) - nll) < 1e-9);
    assert.ok(promptPerSecond > 0 && predictedPerSecond > 0);
  }
  assert.ok(rows.some(({ pareto }) => pareto));
});

test("KL and winners against logits compared by hand", async () => {
  const given = text().slice(0, 600);
  const options = { threads: 1, contextLength: 512 };
  const { rows } = await quality(demo, given, { activations: ["int14"], load: options });
  const [a, b] = await Promise.all([
    load(demo, { ...options, kvCacheType: "f32" }),
    load(demo, { ...options, activations: "int14" }),
  ]);
  const ids = await a.tokenize(given, { addSpecial: false });
  const [own, other] = await Promise.all([a.logits(ids, { all: true }), b.logits(ids, { all: true })]);
  await Promise.all([a.close(), b.close()]);
  const softmax = (row: Float32Array) => {
    const powers = [...row].map((value) => Math.exp(value));
    const sum = powers.reduce((x, y) => x + y, 0);
    return powers.map((value) => value / sum);
  };
  let [kl, same] = [0, 0];
  for (let at = 0; at + 1 < ids.length; at++) {
    const [p, q] = [softmax(own[at]!), softmax(other[at]!)];
    kl += p.reduce((sum, value, i) => sum + value * Math.log(value / q[i]!), 0);
    if (p.indexOf(Math.max(...p)) === q.indexOf(Math.max(...q))) same++;
  }
  const [row] = rows;
  assert.ok(Math.abs(row!.kl! - kl / (ids.length - 1)) < 1e-6);
  assert.equal(row!.sameWinner, same / (ids.length - 1));
});

test("against another model, and one of another vocabulary", async () => {
  const file = goldenPath("gguf/llama_bf16.Q4_0.gguf");
  const short = text().slice(0, 1500);
  const { rows, reference } = await quality(file, short, {
    kv: ["f32"],
    against: goldenPath("gguf/llama_bf16.Q8_0.gguf"),
  });
  assert.equal(reference.model, "another");
  assert.notEqual(reference.perplexity, rows[0]!.perplexity);
  assert.ok(rows[0]!.kl! > 0);
  const foreign = await quality(file, short, { kv: ["f32"], against: demo });
  assert.deepEqual([foreign.rows[0]!.kl, foreign.rows[0]!.sameWinner], [null, null]);
  assert.equal(foreign.rows[0]!.perplexity, rows[0]!.perplexity);
});

test("vocabularies of one size and other tokens are not taken for the same", async () => {
  const given = text().slice(0, 800);
  const load = { threads: 1, contextLength: 512 };
  const files = await Promise.all(
    [given, demoText().slice(-20_000)].map(async (text) => toBlob((await slice(trained(), { keep: 1000, text })).file)),
  );
  const alone = await quality(files[0]!, given, { kv: ["f32"], load });
  const { rows } = await quality(files[0]!, given, { kv: ["f32"], against: files[1]!, load });
  assert.equal(rows[0]!.perplexity, alone.rows[0]!.perplexity);
  assert.deepEqual([rows[0]!.kl, rows[0]!.sameWinner], [null, null]);
});

test("an interrupted measurement goes on from what it had, also within the questions", async () => {
  const given = text().slice(0, 1200);
  const options = { kv: ["f32", "q4"] as const, tasks: TASKS, load: { threads: 1, contextLength: 256 } };
  const whole = await quality(demo, given, options);
  const steady = ({ rows, ...rest }: typeof whole) => ({
    ...rest,
    rows: rows.map(({ promptPerSecond: _, predictedPerSecond: __, pareto: ___, ...row }) => row),
  });
  const memo = new Map<string, number>();
  const stop = new AbortController();
  const reason = new Error("stopped");
  // In the questions of the second setting: two settings of some windows and four questions each.
  const onProgress = (share: number) => share > 0.8 && stop.abort(reason);
  await assert.rejects(quality(demo, given, { ...options, memo, signal: stop.signal, onProgress }), reason);
  assert.ok(memo.size > 40, `${memo.size} numbers`);
  const again = await quality(demo, given, { ...options, memo });
  assert.deepEqual(steady(again), steady(whole));
  // What is kept is not measured again.
  const key = [...memo.keys()].find((name) => name.includes("q4") && name.endsWith(" perplexity"))!;
  memo.set(key, 1234);
  assert.equal((await quality(demo, given, { ...options, memo })).rows[1]!.perplexity, 1234);
});

test("what was measured with other threads is used again, but for its speed and memory", async () => {
  const given = text().slice(0, 400);
  const memo = new Map<string, number>();
  const measured = async (threads: number) => {
    const { rows } = await quality(demo, given, { kv: ["f32"], load: { threads }, memo });
    return rows[0]!;
  };
  await measured(1);
  for (const key of memo.keys()) if (/ (perplexity|predictedPerSecond|memory)$/.test(key)) memo.set(key, 12345);
  const { perplexity, predictedPerSecond, memory } = await measured(1);
  assert.deepEqual([perplexity, predictedPerSecond, memory], [12345, 12345, 12345]);
  const other = await measured(2);
  assert.equal(other.perplexity, 12345);
  assert.ok(other.predictedPerSecond !== 12345 && other.memory !== 12345 && other.predictedPerSecond > 0);
});

test("one prediction and one question have no spread", async () => {
  const { rows } = await quality(demo, text(), { kv: ["f32"], tokens: 2, tasks: TASKS.slice(0, 1) });
  const [{ interval, tokens, tasks }] = rows as [QualityRow];
  assert.deepEqual([interval, tokens, tasks!.accError, tasks!.accNormError], [null, 1, null, null]);
});

test("each row has the bytes of the files and of the packed weights", async () => {
  const file = goldenPath("gguf/llama_bf16.Q8_0.gguf");
  const { rows } = await quality(file, text().slice(0, 400), { head: ["stored", "q4_0"], load: { threads: 1 } });
  const model = await load(file, { threads: 1 });
  const [stored, rounded] = rows as [QualityRow, QualityRow];
  assert.equal(stored.weightBytes, model.info.memory.weights);
  await model.close();
  const { size } = await stat(file);
  assert.deepEqual([stored.fileBytes, rounded.fileBytes], [size, size]);
  assert.ok(rounded.weightBytes < stored.weightBytes);
});

test("the front is what nothing else beats", () => {
  const row = (perplexity: number, predictedPerSecond: number, memory: number) => ({
    perplexity,
    predictedPerSecond,
    memory,
  });
  const rows = withFront([row(10, 5, 100), row(11, 6, 90), row(11, 5, 95), row(10, 5, 100), row(9, 1, 200)]);
  assert.deepEqual(
    rows.map(({ pareto }) => pareto),
    [true, true, false, true, true],
  );
});

const wrongQuery = { key: "query", expected: "a text or none", found: "white space" };

const TASKS = [
  { query: "Once upon a time there was a", choices: ["king", "little girl who lived", "xylophone"], gold: 1 },
  { query: "The wolf said to the little ", choices: ["pig", "girl", "of"], gold: 0 },
  { query: "", choices: ["Once upon a time", "Zebra"], gold: 0 },
  { query: "She opened the door and\n", choices: ["saw — an old woman", "was"], gold: 1 },
];

test("choices are scored by the log-likelihood of their tokens behind the query", async () => {
  const model = await load(demo, { threads: 1 });
  const { tasks, accuracy, computed } = await scoreTasks(model, TASKS);
  const bos = (await model.tokenize(model.info.tokenizer!.bos!, { addSpecial: false }))[0]!;
  let [right, rightNorm, tokens] = [0, 0, 0];
  let before: number[] = [];
  for (const [i, { query, choices, gold }] of TASKS.entries()) {
    // As lm-eval's harness: trailing spaces of the query go to the continuation.
    const own = query.trimEnd();
    const context = query === "" ? [bos] : await model.tokenize(own);
    // What the query before begins with, too, is there; the last token is computed in any case.
    const differs = context.findIndex((id, at) => id !== before[at] || at === context.length - 1);
    tokens += context.length - differs;
    before = [...context];
    const sums: number[] = [];
    for (const [c, choice] of choices.entries()) {
      const rest = `${query.slice(own.length)} ${choice}`;
      const ids =
        query === "" ? [bos, ...(await model.tokenize(rest, { addSpecial: false }))] : await model.tokenize(own + rest);
      const logprobs = await model.promptLogprobs(ids);
      const sum = logprobs.slice(context.length - 1).reduce((all, { logprob }) => all + logprob, 0);
      sums.push(sum);
      const scored = tasks[i]!.choices[c]!;
      assert.equal(scored.tokens, ids.length - context.length);
      assert.ok(Math.abs(scored.logLikelihood - sum) < 1e-6, `${scored.logLikelihood} ${sum}`);
      assert.ok(Math.abs(scored.perToken - sum / scored.tokens) < 1e-6);
      tokens += scored.tokens - 1;
    }
    const norms = sums.map((sum, c) => sum / [...choices[c]!].length);
    if (sums.indexOf(Math.max(...sums)) === gold) right++;
    if (norms.indexOf(Math.max(...norms)) === gold) rightNorm++;
  }
  assert.deepEqual([accuracy.acc, accuracy.accNorm, accuracy.count], [right / 4, rightNorm / 4, 4]);
  // What choices share was computed once.
  assert.equal(computed, tokens);
  await model.close();
});

test("log-likelihoods and accuracies are those of lm-eval on the same lines", async () => {
  const golden = JSON.parse(await readFile(goldenPath("tasks/lm_eval.json"), "utf8"));
  assert.ok(golden.lines.length >= 20);
  const model = await load(demo, { threads: 1 });
  const { tasks, accuracy } = await scoreTasks(model, golden.lines);
  await model.close();
  for (const [i, { query, logLikelihoods, gold, acc, accNorm }] of golden.lines.entries()) {
    const { choices, best, bestNorm } = tasks[i]!;
    assert.equal(choices.length, logLikelihoods.length);
    for (const [c, { logLikelihood }] of choices.entries()) {
      // The harness adds up f32 log-probabilities.
      const off = Math.abs(logLikelihood / logLikelihoods[c] - 1);
      assert.ok(off < 1e-6, `${query}: ${logLikelihood} ${logLikelihoods[c]}`);
    }
    assert.deepEqual([best === gold, bestNorm === gold], [acc === 1, accNorm === 1], query);
  }
  assert.deepEqual([accuracy.acc, accuracy.accNorm], [golden.acc, golden.accNorm]);
  assert.ok(Math.abs(accuracy.accError! - golden.accError) < 1e-9);
});

test("a preamble that lines share is computed once, and changes no number", async () => {
  const model = await load(demo, { threads: 1 });
  const shots = TASKS.filter(({ query }) => query !== "").map((task) => `${task.query} ${task.choices[task.gold]}`);
  const preamble = `${shots.join("\n\n")}\n\n`;
  const tasks = Array.from({ length: 5 }, (_, i) => ({ ...TASKS[0]!, query: `${preamble}Number ${i} was a` }));
  const shared = await scoreTasks(model, tasks);
  const alone = await Promise.all(tasks.map(async (task) => scoreTasks(model, [task])));
  const length = (await model.tokenize(preamble)).length;
  const sum = alone.reduce((all, { computed }) => all + computed, 0);
  assert.ok(shared.computed < sum - 4 * (length - 2), `${shared.computed} of ${sum} tokens`);
  for (const [
    i,
    {
      tasks: [line],
    },
  ] of alone.entries())
    assert.deepEqual(shared.tasks[i], line);
  await model.close();
});

test("a choice without a token of its own is refused, as nothing would be the likeliest", async () => {
  const model = await load(demo, { threads: 1 });
  try {
    const scored = scoreChoices(model.session(), model, [1, 2], [[3], []]);
    await assert.rejects(scored, { name: "EngineError", code: "BadValue" });
  } finally {
    await model.close();
  }
});

test("a query of white space alone stands behind BOS, or is refused where there is none, as by lm-eval", async () => {
  const blank = { query: " \n", choices: ["king", "queen"], gold: 0 };
  const model = await load(demo, { threads: 1 });
  await assert.rejects(scoreTasks(model, [blank]), { name: "EngineError", code: "BadValue", detail: wrongQuery });
  await model.close();
  const other = await load(await goldenFile("gguf/onebitllm_style.TQ2_0.gguf"), { threads: 1 });
  const [bos, ...none] = await other.tokenize("");
  assert.ok(bos !== undefined && none.length === 0);
  const { tasks } = await scoreTasks(other, [blank]);
  const ids = await other.tokenize(" \n king");
  const logprobs = await other.promptLogprobs(ids);
  const sum = logprobs.reduce((all, { logprob }) => all + logprob, 0);
  assert.ok(Math.abs(tasks[0]!.choices[0]!.logLikelihood - sum) < 1e-6);
  await other.close();
});

test("a query that is too long loses its beginning", async () => {
  const model = await load(await goldenFile("gguf/llama_bf16.Q8_0.gguf"), { threads: 1, contextLength: 32 });
  const { tasks } = await scoreTasks(model, [{ query: demoText().slice(0, 500), choices: ["and so on"], gold: 0 }]);
  assert.ok(Number.isFinite(tasks[0]!.choices[0]!.logLikelihood));
  await model.close();
});

test("lines that are no tasks are refused with their number", () => {
  const line = (value: unknown) => JSON.stringify(value);
  for (const [bad, key] of [
    ["{", undefined],
    [line({ choices: ["a"], gold: 0 }), "query"],
    [line({ query: "a", choices: [], gold: 0 }), "choices"],
    [line({ query: "a", choices: ["b"], gold: 1 }), "gold"],
  ] as const) {
    const message = (error: { code: string; message: string; detail: { key?: string } }) =>
      error.code === "BadValue" && error.message.includes("line 2") && error.detail.key === key;
    assert.throws(() => readTasks(`${line(TASKS[0])}\n${bad}\n`, "tasks.jsonl"), message);
  }
});

test("tasks that are given as objects are looked at, too, and errors name what is wrong", async () => {
  const model = await load(demo, { threads: 1 });
  const good = TASKS[0]!;
  for (const [bad, option, message] of [
    [{ ...good, gold: 9 }, ".gold", /: gold must be an integer from 0 to \d, not 9$/],
    [{ query: "Once" }, ".choices", /: choices must be a list of texts, not undefined$/],
    [{ ...good, choices: ["a", ""] }, ".choices[1]", /: choices\[1\] must be a text that is not empty, not ""$/],
    [{}, ".query", /: query must be a text, not undefined$/],
    [null, "", /tasks\[1\] must be \{ query, choices, gold \}, not null$/],
  ] as const) {
    const expected = (error: EngineError) =>
      error.code === "BadValue" &&
      error.detail.option === `tasks[1]${option}` &&
      error.message.startsWith("scoreTasks: tasks[1]") &&
      message.test(error.message);
    await assert.rejects(scoreTasks(model, [good, bad as never]), expected);
  }
  await assert.rejects(scoreTasks(model, new Array(1)), { code: "BadValue", message: /tasks\[0\] must be/ });
  for (const [given, option] of [
    [[null, [good]], "model"],
    [[{}, [good]], "model"],
    [[model], "tasks"],
    [[model, null], "tasks"],
    [[model, 5], "tasks"],
    [[model, "abc"], "tasks"],
    [[model, []], "tasks"],
    [[model, [good], null], "options"],
    [[model, [good], 5], "options"],
    [[model, [good], { onProgress: 5 }], "onProgress"],
    [[model, [good], { signal: 5 }], "signal"],
    [[model, [good], { progress() {} }], "progress"],
  ] as const) {
    const scored = scoreTasks(...(given as unknown as Parameters<typeof scoreTasks>));
    const expected = (error: EngineError) =>
      error.code === "InvalidArgument" && error.detail.option === option && error.message.startsWith("scoreTasks: ");
    await assert.rejects(scored, expected, option);
  }
  await model.close();
});

test("options that are wrong are refused by name", async () => {
  const wrong = (option: string) => (error: { code: string; detail: { option?: string } }) =>
    error.code === "InvalidArgument" && error.detail.option === option;
  await assert.rejects(quality(demo, text(), { kv: ["f64" as never] }), wrong("kv"));
  await assert.rejects(quality(demo, text(), { heads: [] } as never), wrong("heads"));
  await assert.rejects(quality(demo, "a", { kv: ["f32"] }), wrong("text"));
});

test("the command prints a table, a picture and lines for a spreadsheet", async (context) => {
  const files = {
    "text.txt": new TextEncoder().encode(text()),
    "tasks.jsonl": new TextEncoder().encode(TASKS.map((task) => JSON.stringify(task)).join("\n")),
  };
  const folder = await folderOf(context, files);
  const at = (name: string) => path.join(folder, name);
  const flags = ["ternlight-demo", at("text.txt"), "--kv", "f32,q4", "--head", "stored,q8_0", "--tokens", "600"];
  const outs = ["--csv", at("out.csv"), "--plot", at("out.svg"), "--tasks", at("tasks.jsonl")];
  const told = await json("quality", ...flags, ...outs);
  const settings = told.rows.map(({ kv, head }: { kv: string; head: string }) => `${kv} ${head}`);
  assert.deepEqual(settings, ["f32 stored", "f32 q8_0", "q4 stored", "q4 q8_0"]);
  assert.equal(told.rows[0].tasks.count, 4);
  assert.deepEqual(
    told.rows[0].tasks.lines.map(({ choices }: { choices: object[] }) => choices.length),
    TASKS.map(({ choices }) => choices.length),
  );
  const csv = (await readFile(at("out.csv"), "utf8")).trim().split("\n");
  assert.equal(csv.length, 5);
  assert.equal(csv[0]!.split(",").length, csv[1]!.split(",").length);
  const [head, first] = csv.map((line) => line.split(",")) as [string[], string[]];
  const cell = (name: string) => Number(first[head.indexOf(name)]);
  assert.deepEqual([cell("file_bytes"), cell("weight_bytes")], [told.rows[0].fileBytes, told.rows[0].weightBytes]);
  assert.ok(!existsSync(at("out.csv.partial")), "what is done leaves nothing");
  const picture = await readFile(at("out.svg"), "utf8");
  assert.equal(picture.match(/<circle/g)!.length, 4);
  const { stdout } = await done("quality", ...flags);
  assert.match(stdout, /^ {2}\*? +kv f32 +\d+\.\d{4} +/m);
  assert.match(stdout, /tokens\/s +file +packed +memory/);
  assert.equal((await ternlight("quality", "ternlight-demo", at("text.txt"), "--kv", "f33")).status, 2);
});
