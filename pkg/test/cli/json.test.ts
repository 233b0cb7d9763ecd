import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { watch } from "node:fs";
import {
  chmod,
  lstat,
  mkdtemp,
  readdir,
  readFile,
  rename,
  rm,
  stat,
  symlink,
  utimes,
  writeFile,
} from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { DEMO, done, failure, json, start } from "./support/ternlight.ts";

const GREEDY = ["--temp", "0", "--threads", "1"];

test("run: the fields of `finished`, and the model", async () => {
  const answer = await json("run", DEMO, "-p", "Once upon a time", "-n", "12", ...GREEDY);
  const { timings, model, ...rest } = answer;
  assert.deepEqual(rest, {
    text: " there lived a man who had a wife and a wife.",
    tokens: [441, 1113, 259, 477, 443, 336, 259, 976, 270, 259, 976, 14],
    promptTokens: [2343, 821, 259, 522],
    finishReason: "length",
    repetitionScore: 0,
  });
  const { cachedN, ...times } = timings;
  assert.equal(cachedN, 0);
  assert.deepEqual(Object.keys(times).sort(), [
    "predictedMs",
    "predictedN",
    "predictedPerSecond",
    "promptMs",
    "promptN",
    "promptPerSecond",
    "ttftMs",
  ]);
  assert.equal(timings.promptN, 4);
  assert.equal(timings.predictedN, 12);
  for (const value of Object.values(times)) assert.ok((value as number) > 0, JSON.stringify(timings));
  assert.equal(model.architecture, "BitNetForCausalLM");
  assert.equal(model.threads, 1);
  assert.match(model.flavour, /^single-/);
  assert.equal("tensors" in model, false);
});

test("run: every sampling flag sets its option", async () => {
  const flags =
    "--dynamic-temp 0.2 --dynamic-exponent 2 --typical-p 0.9 --top-n-sigma 3 --xtc-probability 0.1 --xtc-threshold 0.2 \
    --frequency-penalty 0.1 --presence-penalty 0.1 --penalty-last-n 64 --dry-multiplier 0.5 --dry-base 1.5 --dry-allowed-length 3 \
    --dry-last-n 64 --dry-breaker . --dry-breaker ! --adaptive-top-k --mirostat-tau 4 --mirostat-eta 0.2 --generation-config none \
    --samplers penalties,dry,temperature --sanitize --seed 7";
  const ask = (...more: string[]) => json("run", DEMO, "-p", "Once  upon a time", "-n", "3", "--threads", "1", ...more);
  const { tokens, promptTokens } = await ask(...flags.split(/\s+/));
  assert.equal(tokens.length, 3);
  assert.deepEqual(promptTokens, [2343, 821, 259, 522], "one space is left");
  const banned = await ask("--temp", "0", "--logit-bias", "441=-inf,17=-2.5", "--ban", "lived", "--logprobs", "2");
  assert.doesNotMatch(banned.text, /there|lived/);
  assert.deepEqual(
    banned.logprobs.map(({ token, top }: { token: number; top: unknown[] }) => [token, top.length]),
    banned.tokens.map((token: number) => [token, 2]),
  );
});

test("run: stop texts, --ids, --no-special and --ignore-eos", async () => {
  const stopped = await json("run", DEMO, "-p", "Once upon a time", "--stop", "XYZ", "--stop", "man w", ...GREEDY);
  assert.equal(stopped.text, " there lived a ");
  assert.equal(stopped.finishReason, "stop");
  const ids = await json("run", DEMO, "--ids", "2343, 821,259,522", "-n", "3", ...GREEDY);
  assert.deepEqual(ids.promptTokens, [2343, 821, 259, 522]);
  assert.deepEqual(ids.tokens, [441, 1113, 259]);
  // Its context is full before the model ends, whatever its end tokens say.
  const endless = await json("run", DEMO, "--ids", "1", "--context", "40", "--ignore-eos", ...GREEDY);
  assert.equal(endless.finishReason, "length");
  assert.equal(endless.tokens.length, 40);
  const plain = await json("run", DEMO, "-p", "Once", "-n", "1", "--no-special", ...GREEDY);
  assert.equal(plain.promptTokens.length, 1);
});

test("the same seed gives the same tokens, another one others", async () => {
  const seeded = (seed: string) => json("run", DEMO, "-p", "One day", "-n", "24", "--seed", seed, "--threads", "1");
  const [first, again, other] = await Promise.all([seeded("7"), seeded("7"), seeded("8")]);
  assert.deepEqual(first.tokens, again.tokens);
  assert.notDeepEqual(first.tokens, other.tokens);
});

test("run: several completions, each what its seed gives alone", async () => {
  const seeded = ["run", DEMO, "-p", "One day", "-n", "12", "--threads", "1"];
  const { choices, text } = await json(...seeded, "--seed", "7", "--completions", "3");
  assert.equal(text, choices[0].text);
  for (const [i, choice] of choices.entries()) {
    assert.deepEqual(choice.tokens, (await json(...seeded, "--seed", String(7 + i))).tokens);
  }
  const shown = await done(...seeded, "--seed", "7", "--completions", "3");
  assert.equal(shown.stdout, `${choices.map(({ text }: { text: string }) => `${text}\n`).join("---\n")}`);
  assert.match(shown.stderr, /3 completions/);
});

test("run: a conversation kept in a file goes on from there", async () => {
  const folder = await mkdtemp(join(tmpdir(), "ternlight-"));
  try {
    const file = join(folder, "talk");
    const first = await json("run", DEMO, "-p", "Once upon a time", "-n", "6", "--session", file, ...GREEDY);
    const second = await json("run", DEMO, "-p", " and then", "-n", "6", "--session", file, ...GREEDY);
    const whole = [first.promptTokens, first.tokens, second.promptTokens].flat().join();
    assert.deepEqual((await json("run", DEMO, "--ids", whole, "-n", "6", ...GREEDY)).tokens, second.tokens);
    assert.ok(second.timings.promptN <= 3, "what the file has is not computed again");
    assert.deepEqual(await readdir(folder), ["talk"]);

    await writeFile(file, "no session");
    const refused = await failure(1, "run", DEMO, "-p", "Once", "--session", file, ...GREEDY);
    assert.deepEqual([refused.code, refused.message], ["BadMagic", `${file}: not a saved session`]);
    assert.deepEqual(refused.detail, { file, option: "--session" });
    const both = await failure(2, "run", DEMO, "-p", "Once", "--session", file, "--completions", "2");
    assert.match(both.message, /--completions does not go with --session/);
  } finally {
    await rm(folder, { recursive: true });
  }
});

test("run: where no session can be kept is known before anything is computed", async () => {
  const folder = await mkdtemp(join(tmpdir(), "ternlight-"));
  const refused = (model: string, file: string) => failure(1, "run", model, "-p", "Once", "--session", file);
  try {
    const nowhere = join(folder, "no", "talk");
    const { code, message, detail } = await refused(DEMO, nowhere);
    assert.equal(code, "Unwritable");
    assert.ok(message.includes(`${nowhere}: `), message);
    assert.deepEqual(detail, { file: nowhere });
    await writeFile(join(folder, "file"), "");
    for (const file of [folder, `${folder}/no/`, join(folder, "file", "talk")]) {
      // A model that is not there was not looked for.
      assert.equal((await refused("nowhere.gguf", file)).code, "Unwritable", file);
    }
    assert.deepEqual(await readdir(folder), ["file"]);

    // What a killed run left behind is in nobody's way, and is gone with the next; one that may still be running is left alone.
    const part = (digit: string) => `.ternlight-${digit.repeat(32)}.part`;
    for (const name of [part("a"), part("b"), "talk.part"]) await writeFile(join(folder, name), "half of a sess");
    const before = new Date(Date.now() - 2 * 3_600_000);
    await utimes(join(folder, part("a")), before, before);
    await utimes(join(folder, "talk.part"), before, before);
    await json("run", DEMO, "-p", "Once", "-n", "2", "--session", join(folder, "talk"), ...GREEDY);
    assert.deepEqual((await readdir(folder)).sort(), [part("b"), "file", "talk", "talk.part"]);
    const unnamed = await failure(2, "run", DEMO, "-p", "Once", "--session", "");
    assert.match(unnamed.message, /--session must be a file's name/);
  } finally {
    await rm(folder, { recursive: true });
  }
});

test("run: a session is its owner's alone, and is written through no link", {
  skip: process.platform === "win32" && "it has other permissions",
}, async () => {
  const folder = await mkdtemp(join(tmpdir(), "ternlight-"));
  try {
    const [own, other] = [join(folder, "talk"), join(folder, "other")];
    await writeFile(other, "another's", { mode: 0o644 });
    // What an attacker puts where an earlier version would have written.
    await symlink(other, `${own}.part`);
    await symlink(other, join(folder, "linked"));
    const run = (file: string) => json("run", DEMO, "-p", "Once", "-n", "2", "--session", file, ...GREEDY);
    await run(own);
    assert.equal((await stat(own)).mode & 0o777, 0o600);
    await chmod(own, 0o644);
    await run(own);
    assert.equal((await stat(own)).mode & 0o777, 0o600);
    assert.equal((await failure(1, "run", DEMO, "-p", "Once", "--session", join(folder, "linked"))).code, "BadMagic");
    await writeFile(other, await readFile(own));
    const before = await readFile(other);
    await run(join(folder, "linked"));
    assert.deepEqual(await readFile(other), before, "what the link led to is as it was");
    assert.ok((await lstat(join(folder, "linked"))).isFile());
  } finally {
    await rm(folder, { recursive: true });
  }
});

test("run: a session that cannot be kept in the end leaves the answer alone on stdout", async () => {
  const folder = await mkdtemp(join(tmpdir(), "ternlight-"));
  try {
    const saved = join(folder, "talk");
    // It looks whether there is room by a file that it makes. Its folder is away when the answer is there.
    const looked = once(watch(folder, { persistent: false }), "change");
    const { ended } = start([
      "run",
      DEMO,
      "-p",
      "Once upon a time",
      "-n",
      "6",
      "--session",
      saved,
      "--json",
      ...GREEDY,
    ]);
    await looked;
    await rename(folder, `${folder}-away`);
    const { status, stdout, stderr } = await ended;
    assert.equal(status, 1);
    assert.equal(JSON.parse(stdout).tokens.length, 6);
    assert.match(stderr, /^ternlight: Unwritable: the session cannot be kept in .*talk: /m);
  } finally {
    await rm(folder, { recursive: true, force: true });
    await rm(`${folder}-away`, { recursive: true, force: true });
  }
});

test("logits: the last position or all, and the sha256 of their bytes", async () => {
  const ids = "2343,821,259,522";
  const last = await json("logits", DEMO, "--ids", ids);
  assert.deepEqual(Object.keys(last), ["vocab", "positions", "logits", "sha256"]);
  assert.deepEqual([last.vocab, last.positions, last.logits.length], [4096, 1, 1]);
  const all = await json("logits", DEMO, "--ids", ids, "--all");
  assert.deepEqual([all.vocab, all.positions, all.logits.length], [4096, 4, 4]);
  assert.deepEqual(all.logits.at(-1), last.logits[0]);
  for (const { logits, sha256 } of [last, all]) {
    const hash = createHash("sha256");
    for (const row of logits) {
      const bytes = new DataView(new ArrayBuffer(4 * row.length));
      row.forEach((value: number, i: number) => {
        assert.equal(Math.fround(value), value, "an f32 as JSON is the same f32");
        bytes.setFloat32(4 * i, value, true);
      });
      hash.update(bytes);
    }
    assert.equal(sha256, hash.digest("hex"));
  }
});

test("tokenize: the ids alone", async () => {
  assert.deepEqual(await json("tokenize", DEMO, "-p", "Once upon a time"), { ids: [2343, 821, 259, 522] });
  const special = await json("tokenize", DEMO, "-p", "<|endoftext|>Once", "--no-special");
  assert.deepEqual(special, { ids: [0, 2343] });
});

test("perplexity: of windows, each predicted from its own beginning", async (context) => {
  const folder = await mkdtemp(join(tmpdir(), "ternlight-"));
  context.after(() => rm(folder, { recursive: true }));
  const file = join(folder, "text.txt");
  await writeFile(file, "Once upon a time there was a little rabbit who lived in the old briar-patch.");
  const whole = await json("perplexity", DEMO, file);
  assert.deepEqual(Object.keys(whole), ["perplexity", "nll", "tokens"]);
  assert.equal(whole.perplexity, Math.exp(whole.nll));
  const { ids } = await json(
    "tokenize",
    DEMO,
    "-p",
    "Once upon a time there was a little rabbit who lived in the old briar-patch.",
  );
  assert.equal(whole.tokens, ids.length - 1);

  const rows = (await json("logits", DEMO, "--ids", ids.join(), "--all")).logits as number[][];
  const surprise = (row: number[], id: number) => {
    const most = Math.max(...row);
    return Math.log(row.reduce((sum, value) => sum + Math.exp(value - most), 0)) + most - row[id]!;
  };
  const mean =
    ids.slice(1).reduce((sum: number, id: number, i: number) => sum + surprise(rows[i]!, id), 0) / whole.tokens;
  assert.ok(Math.abs(mean - whole.nll) < 1e-9, `${mean} is not ${whole.nll}`);

  const halves = await json("perplexity", DEMO, file, "--window", String(Math.ceil(ids.length / 2)));
  assert.equal(halves.tokens, ids.length - 2);
  await writeFile(file, "Once");
  assert.equal((await failure(1, "perplexity", DEMO, file)).code, "InvalidArgument");
  await writeFile(file, Uint8Array.of(0xc3, 0x28));
  assert.equal((await failure(1, "perplexity", DEMO, file)).code, "BadValue");
});

test("people get the same in words", async () => {
  const { stdout, stderr } = await done("run", DEMO, "-p", "Once upon a time", "-n", "4", ...GREEDY);
  assert.equal(stdout, " there lived a man\n");
  assert.match(stderr, /^4 prompt tokens at .* · 4 tokens at .* · ended by length · single-\w+, 1 thread\n$/);
  assert.match((await done("tokenize", DEMO, "-p", "Once upon")).stdout, /2343 {2}"Once"\n +821 {2}" upon"\n$/);
  assert.match((await done("logits", DEMO, "--ids", "2343,821")).stdout, /sha256 of 1 × 4096 f32: [0-9a-f]{64}\n$/);
});
