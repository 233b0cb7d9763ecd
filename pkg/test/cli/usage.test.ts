import assert from "node:assert/strict";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { DEMO, done, failure, ternlight } from "./support/ternlight.ts";

const wrong: [string[], RegExp][] = [
  [[], /a command is missing/],
  [["rum", DEMO], /no command rum; the nearest is run/],
  [["--threads", "2", "run"], /the command comes first/],
  [["run"], /MODEL is missing/],
  [["run", DEMO], /either -p TEXT or --ids/],
  [["run", DEMO, "-p", "a", "--ids", "1"], /either -p TEXT or --ids/],
  [["run", DEMO, "-p"], /-p needs a value/],
  [["run", DEMO, "-p", "--temp", "0"], /-p needs a value/],
  [["run", DEMO, "-p", "a", "b"], /unexpected argument "b"/],
  [["run", DEMO, "-p", "a", "--treads", "2"], /no flag --treads; the nearest is --threads/],
  [["run", DEMO, "-p", "a", "-n", "x"], /--max-tokens must be an integer/],
  [["run", DEMO, "-p", "a", "-n", ""], /--max-tokens must be an integer/],
  [["run", DEMO, "-p", "a", "--temp", "-1"], /--temp must be a number from 0/],
  [["run", DEMO, "-p", "a", "--top-k", "1.5"], /--top-k must be an integer/],
  [["run", DEMO, "-p", "a", "--top-p", "2"], /--top-p must be a number from 0 to 1/],
  [["run", DEMO, "-p", "a", "--min-p", "nan"], /--min-p must be a number/],
  [["run", DEMO, "-p", "a", "--repetition-penalty", "0"], /--repetition-penalty must be/],
  [["run", DEMO, "-p", "a", "--samplers", "topK,topQ"], /--samplers must be a list of/],
  [["run", DEMO, "-p", "a", "--logit-bias", "x=1"], /--logit-bias must be/],
  [["run", DEMO, "-p", "a", "--logprobs", "500"], /--logprobs must be an integer/],
  [["run", DEMO, "-p", "a", "--seed", "-3"], /--seed must be an integer/],
  [["run", DEMO, "-p", "a", "--ignore-eos=yes"], /--ignore-eos takes no value/],
  [["run", DEMO, "-p", "a", "--threads", "0"], /--threads must be an integer from 1/],
  [["run", DEMO, "-p", "a", "--flavour", "fast"], /--flavour must be "auto", "relaxed", "simd128"/],
  [["run", DEMO, "-p", "a", "--kv", "f8"], /--kv must be/],
  [["run", DEMO, "-p", "a", "--activations", "int4"], /--activations must be/],
  [["run", DEMO, "-p", "a", "--context", "0"], /--context must be/],
  [["run", DEMO, "-p", "a", "--prefill-chunk", "0"], /--prefill-chunk must be/],
  [["run", DEMO, "-p", "a", "--no-repack=yes"], /--no-repack takes no value/],
  [["run", DEMO, "-p", "a", "--i2s", "32"], /--i2s must be "auto", "128", "64"/],
  [["run", DEMO, "-p", "a", "--head", "f16"], /--head must be "stored", "q8_0", "q6_k", "q4_0"/],
  [["run", DEMO, "-p", "a", "--verify", "often"], /--verify must be "auto", "always"/],
  [["run", DEMO, "-p", "a", "--integrity", "abc"], /--integrity must be a SHA-256/],
  [["run", DEMO, "-p", "a", "--connections", "0"], /--connections must be an integer from 1 to 16/],
  [["run", DEMO, "-p", "a", "--cache", "x", "--no-cache"], /either --cache or --no-cache/],
  [["can-run", DEMO, "--memory", "lots"], /--memory must be an integer .* bytes, or a text like 4GB, not "lots"/],
  [["cache", "delete"], /give either a URL or --all/],
  [["run", DEMO, "-p", "a", "--regex", "b", "--grammar", "c"], /either --regex or --grammar/],
  [["run", DEMO, "-p", "a", "--json-schema", "{]"], /--json-schema: /],
  [["run", DEMO, "-p", "a", "--adapter", "x=often"], /--adapter must have a number from -1000 to 1000/],
  [["run", DEMO, "-p", "a", "--max-adapter-bytes", "x"], /--max-adapter-bytes must be an integer/],
  [["run", DEMO, "-p", "a", "--kernel", "dot4"], /no flag --kernel; in its place there is --dot-product$/m],
  [["run", DEMO, "-p", "a", "--preset", "none"], /in its place there is --generation-config$/m],
  [["run", DEMO, "-p", "a", "--preprocess", "safe"], /in its place there is --sanitize$/m],
  [["run", DEMO, "-p", "a", "--speculate"], /in its place there is --prompt-lookup$/m],
  [["run", DEMO, "-p", "a", "--layout", "stored"], /in its place there is --no-repack$/m],
  [["run", DEMO, "-p", "a", "--adapter-bytes", "9"], /in its place there is --max-adapter-bytes$/m],
  [["loadtest", DEMO, "--max-queue", "1"], /in its place there is --max-waiting$/m],
  [["loadtest", DEMO, "--cache-tokens", "64"], /in its place there is --kv-cache-tokens$/m],
  [["loadtest", DEMO, "--first-come"], /in its place there is --scheduling$/m],
  [["bench", DEMO, "--load"], /in its place there is the command loadtest$/m],
  [["bench", DEMO, "--prompt", "16"], /in its place there is --prompt-tokens$/m],
  [["logits", DEMO], /--ids 1,2,3 is missing/],
  [["logits", DEMO, "--ids", "1,,2"], /--ids must be token ids/],
  [["logits", DEMO, "--ids", "1,-2"], /--ids must be token ids/],
  [["logits", DEMO, "--ids", "1", "--temp", "0"], /there is no flag --temp/],
  [["tokenize", DEMO], /-p TEXT is missing/],
  [["perplexity", DEMO], /FILE is missing/],
  [["perplexity", DEMO, "text", "--window", "1"], /--window must be an integer from 2/],
  [["inspect", DEMO, "--weights", "--no-weights"], /either --weights or --no-weights/],
  [["convert", DEMO], /OUT\.gguf is missing/],
  [["convert", "nowhere.gguf", ""], /OUT\.gguf must be the name of a file, not ""/],
  [["convert", "nowhere.gguf", "newdir/"], /OUT\.gguf must be the name of a file, not "newdir\/"/],
  [
    ["convert", DEMO, "x.gguf", "--type", "q4_0"],
    /--type must be "tq2_0", "tq1_0", "q1_0", "i2_s", "keep", not "q4_0"/,
  ],
  [["convert", DEMO, "x.gguf", "--head", "f32"], /--head must be "keep"/],
  [["inspect", DEMO, "--strict", "2bit"], /--strict must be "1bit", "ternary"/],
];

test("wrong usage ends with 2, says what is wrong and shows the usage", async (context) => {
  for (const [args, message] of wrong) {
    await context.test(`ternlight ${args.join(" ")}`, async () => {
      const { status, stdout, stderr } = await ternlight(...args);
      assert.equal(status, 2, stderr);
      assert.equal(stdout, "");
      assert.match(stderr, message);
      assert.match(stderr, /^usage: ternlight /m);
      assert.doesNotMatch(stderr, /^\s+at /m);
    });
  }
});

test("with --json it is an error object too", async () => {
  const { code, detail } = await failure(2, "run", DEMO, "-p", "a", "--temp", "hot");
  assert.equal(code, "InvalidArgument");
  assert.deepEqual(detail, { option: "--temp", expected: "a number from 0 to 100", found: '"hot"' });
});

test("help of every command names its flags, and needs no model", async () => {
  const { stdout } = await done("--help");
  const commands = ["run", "logits", "tokenize", "perplexity", "inspect", "convert"];
  assert.match(stdout, /^ {2}loadtest +Asks a model or a server as many clients/m);
  for (const command of commands) {
    assert.match(stdout, new RegExp(`^  ${command} `, "m"));
    const help = (await done(command, "--help")).stdout;
    assert.match(help, new RegExp(`^usage: ternlight ${command} MODEL`));
    for (const common of ["threads", "flavour", "kv", "activations", "context", "prefill-chunk", "json", "debug"]) {
      assert.match(help, new RegExp(`--${common}\\b`));
    }
  }
  assert.match((await done("--version")).stdout, /^\d+\.\d+\.\d+\n$/);
  assert.match((await done("cache", "delete", "--help")).stdout, /^usage: ternlight cache delete \(URL \| --all\) \[/);
  assert.match(
    (await done("run", "--help")).stdout,
    /keeps files from servers \(default: ternlight in the user's caches\)/,
  );
  // It is for people, whatever else is asked for.
  assert.match((await done("run", "--help", "--json")).stdout, /^usage: ternlight run MODEL/);
});

test("convert: who cannot be written is the file that was named", async () => {
  const file = join(tmpdir(), "ternlight-no-such-folder", "x.gguf");
  const { code, message, detail } = await failure(1, "convert", DEMO, file);
  assert.equal(code, "Unwritable");
  assert.ok(message.startsWith(`${file} cannot be written: `), message);
  assert.deepEqual(detail, { file });
});

test("a stack trace is for those who ask for it", async () => {
  const { status, stderr } = await ternlight("run", "nowhere.gguf", "-p", "a", "--debug");
  assert.equal(status, 1);
  assert.match(stderr, /^ternlight: NotFound: /);
  assert.match(stderr, /^\s+at /m);
});
