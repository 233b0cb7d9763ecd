/** What cannot be written is named, and leaves nothing behind. */

import assert from "node:assert/strict";
import { readdir } from "node:fs/promises";
import path from "node:path";
import { test } from "node:test";
import { folderOf } from "../source/support/models.ts";
import { DEMO, failure, type Host, start } from "./support/ternlight.ts";

/** Files cannot grow, as on a disk that is full. */
const FULL: Host = ["sh", "-c", `trap '' XFSZ; ulimit -f 0; exec "$0" "$@"`, process.execPath];
const dataset = new TextEncoder().encode("Once upon a time there was a king who had three sons. ".repeat(20));

test("on a full disk the file is named, and is not there", async (context) => {
  const folder = await folderOf(context, { "text.txt": dataset });
  const at = (name: string) => path.join(folder, name);
  const few = ["--calibration-samples", "2", "--calibration-tokens", "32"];
  const commands = [
    [at("activations.json"), "calibrate", DEMO, "--dataset", at("text.txt"), "--output-dir", folder, ...few],
    [at("out.gguf"), "convert", DEMO, at("out.gguf")],
  ] as const;
  for (const [file, ...args] of commands) {
    const { status, stderr } = await start(args, FULL).ended;
    assert.equal(status, 1, stderr);
    assert.ok(stderr.includes(`Unwritable: ${file} cannot be written: EFBIG`), stderr);
  }
  assert.deepEqual(await readdir(folder), ["text.txt"]);
});

test("a file in place of calibrate's folder is told by its flag", async (context) => {
  const file = path.join(await folderOf(context, { "text.txt": dataset }), "text.txt");
  const { code, message, detail } = await failure(1, "calibrate", DEMO, "--dataset", file, "--output-dir", file);
  assert.equal(code, "Unwritable");
  assert.match(message, /^--output-dir: EEXIST/);
  assert.deepEqual(detail, { option: "--output-dir", file });
});
