/** What models say reaches a terminal without a character that it would obey, and a pipe as it is. */

import assert from "node:assert/strict";
import { cp, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { type Output, Terminal } from "../../src/cli/terminal.ts";
import { DEMO, type Host, path, start, ternlight } from "./support/ternlight.ts";

/** Clears the screen, writes the clipboard (OSC 52) in both forms, turns the line around, goes back, deletes. */
const EVIL = "a\x1b[2J\x1b]52;c;ZXZpbA==\x07b\x9d52;c;eA==\x9c\u202e\u2066\r\b\x7f\0";
const SHOWN = "a\\x1b[2J\\x1b]52;c;ZXZpbA==\\x07b\\x9d52;c;eA==\\x9c\\u202e\\u2066\\x0d\\x08\\x7f\\x00";
/** C0 but newline and tab, DEL, C1; then marks, embeddings and isolates. */
const CODES: [number, number][] = [
  [0, 8],
  [11, 31],
  [127, 159],
  [0x61c, 0x61c],
  [0x200e, 0x200f],
  [0x202a, 0x202e],
  [0x2066, 0x2069],
];
const isObeyed = (letter: string) =>
  CODES.some(([from, to]) => letter.charCodeAt(0) >= from && letter.charCodeAt(0) <= to);
const obeyed = (text: string) => [...text].filter(isObeyed);

/** Where both outputs take themselves for a terminal. */
const TTY: Host = [
  process.execPath,
  "--import",
  "data:text/javascript,process.stdout.isTTY = process.stderr.isTTY = true",
];

/** The one sequence that progress itself writes. */
const withoutProgress = (text: string) => text.replaceAll("\r\x1b[K", "");

let folder: string;
before(async () => {
  folder = await mkdtemp(join(tmpdir(), "ternlight-"));
  await cp(path(`pkg/models/${DEMO}`), folder, { recursive: true });
});
after(() => rm(folder, { recursive: true }));

async function config(change: object): Promise<void> {
  const demo = JSON.parse(await readFile(path(`pkg/models/${DEMO}/config.json`), "utf8"));
  await writeFile(join(folder, "config.json"), JSON.stringify({ ...demo, ...change }));
}

test("each character that a terminal obeys is escaped, however a text is cut", async () => {
  const written = { out: "", err: "" };
  const to = (name: "out" | "err", isTTY: boolean): Output => ({
    isTTY,
    write(text, done) {
      written[name] += text;
      done();
    },
  });
  const terminal = new Terminal({ out: to("out", true), err: to("err", true), json: false });
  for (const letter of EVIL) await terminal.print(letter);
  await terminal.note(EVIL);
  await terminal.warn([EVIL]);
  assert.equal(written.out, SHOWN);
  assert.equal(written.err, `${SHOWN}\nwarning: ${SHOWN}\n`);
  for (let code = 0; code < 0x3000; code++) {
    written.out = "";
    const letter = String.fromCharCode(code);
    await terminal.print(letter);
    assert.equal(written.out === letter, !isObeyed(letter), `U+${code.toString(16)}`);
    assert.deepEqual(obeyed(written.out), []);
  }

  const pipe = new Terminal({ out: to("out", false), err: to("err", false), json: false });
  written.out = written.err = "";
  await pipe.print(EVIL);
  await pipe.note(EVIL);
  assert.deepEqual(written, { out: EVIL, err: `${EVIL}\n` });
  written.out = "";
  await pipe.printJson({ text: EVIL });
  assert.deepEqual(obeyed(written.out), []);
  assert.deepEqual(JSON.parse(written.out), { text: EVIL });
});

test("tokens of an answer", async () => {
  const pattern = "a\\x1b\\]52;c;eA==\\x07";
  const args = ["run", DEMO, "-p", "Once", "-n", "20", "--regex", pattern, "--threads", "1"];
  const piped = await ternlight(...args);
  assert.equal(piped.stdout, "a\x1b]52;c;eA==\x07\n");
  const watched = await start(args, TTY).ended;
  assert.equal(watched.status, 0, watched.stderr);
  assert.equal(watched.stdout, "a\\x1b]52;c;eA==\\x07\n");
  assert.deepEqual(obeyed(withoutProgress(watched.stderr)), []);
  const { stdout } = await start([...args, "--json"], TTY).ended;
  assert.equal(JSON.parse(stdout).text, "a\x1b]52;c;eA==\x07");
});

test("names in reports and errors", async () => {
  await config({ _name_or_path: EVIL });
  const report = await start(["inspect", folder], TTY).ended;
  assert.equal(report.status, 0, report.stderr);
  assert.ok(report.stdout.startsWith(`${SHOWN}\n`), report.stdout);
  assert.deepEqual(obeyed(report.stdout), []);

  await config({ architectures: [EVIL], model_type: EVIL });
  const failed = await start(["inspect", folder], TTY).ended;
  assert.equal(failed.status, 1);
  assert.ok(failed.stderr.includes("\\x1b[2J"), failed.stderr);
  assert.deepEqual(obeyed(withoutProgress(failed.stderr)), []);
  const { stdout } = await start(["inspect", folder, "--json"], TTY).ended;
  assert.deepEqual(obeyed(stdout), []);
  assert.ok(JSON.parse(stdout).error.message.includes("\x1b[2J"));
});
