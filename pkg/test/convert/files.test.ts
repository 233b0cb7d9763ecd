/** What a conversion leaves on the disk, and what it takes of the memory. */

import assert from "node:assert/strict";
import { type ChildProcess, execFileSync } from "node:child_process";
import { open, readdir, readFile, stat, writeFile } from "node:fs/promises";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { json as answer, failure, start } from "../cli/support/ternlight.ts";
import { folderOf, goldenFolder, goldenPath } from "../source/support/models.ts";
import { json } from "../source/support/split.ts";
import { folder } from "./support/convert.ts";

/** Masters of some layers that are nothing but zeros: a file with a hole, so that its size costs nothing. */
async function zeros(context: TestContext, layers: number): Promise<string> {
  const { "config.json": config, "model.safetensors": _, ...side } = await goldenFolder("models/bitnet_online");
  const [hidden, ffn, vocab] = [2048, 5632, 512];
  const shapes: Record<string, number[]> = {
    "model.embed_tokens.weight": [vocab, hidden],
    "model.norm.weight": [hidden],
  };
  for (let layer = 0; layer < layers; layer++) {
    const own = (name: string, ...shape: number[]) => {
      shapes[`model.layers.${layer}.${name}.weight`] = shape;
    };
    for (const name of ["q_proj", "k_proj", "v_proj", "o_proj"]) own(`self_attn.${name}`, hidden, hidden);
    for (const name of ["gate_proj", "up_proj"]) own(`mlp.${name}`, ffn, hidden);
    own("mlp.down_proj", hidden, ffn);
    for (const name of ["input_layernorm", "post_attention_layernorm", "self_attn.attn_sub_norm"]) own(name, hidden);
    own("mlp.ffn_sub_norm", ffn);
  }
  let offset = 0;
  const entries = Object.entries(shapes).map(([name, shape]) => {
    const begin = offset;
    offset += 2 * shape.reduce((product, length) => product * length, 1);
    return [name, { dtype: "BF16", shape, data_offsets: [begin, offset] }];
  });
  const header = json(Object.fromEntries(entries));
  const sizes = { hidden_size: hidden, intermediate_size: ffn, num_hidden_layers: layers, num_key_value_heads: 16 };
  const made = await folderOf(context, {
    ...side,
    "config.json": json({ ...JSON.parse(new TextDecoder().decode(config)), ...sizes, num_attention_heads: 16 }),
  });
  const file = await open(path.join(made, "model.safetensors"), "w");
  await file.write(new BigUint64Array([BigInt(header.length)]));
  await file.write(header);
  await file.truncate(8 + header.length + offset);
  await file.close();
  return made;
}

test("300 MB pass through without staying", {
  skip: process.platform !== "linux" && "peaks are read from /proc",
}, async (context) => {
  const source = await zeros(context, 3);
  const into = await folder(context);
  const { child, ended } = start(["convert", source, path.join(into, "x.gguf"), "--json"]);
  let peak = 0;
  const watch = setInterval(async () => {
    const status = await readFile(`/proc/${child.pid}/status`, "utf8").catch(() => "");
    peak = Math.max(peak, Number(/VmHWM:\s+(\d+) kB/.exec(status)?.[1] ?? 0) / 1000);
  }, 20);
  const { status, stderr } = await ended;
  clearInterval(watch);
  assert.equal(status, 0, stderr);
  const { size } = await stat(path.join(source, "model.safetensors"));
  context.diagnostic(`${(size / 1e6).toFixed(0)} MB in, ${peak.toFixed(0)} MB resident at most`);
  assert.ok(size > 300e6 && peak > 0 && peak < 220, `${peak} MB`);
});

const NOTHING: string[] = [];

test("whatever ends it, nothing is left behind", async (context) => {
  const source = await zeros(context, 8);
  const ends: [NodeJS.Signals, number][] = [
    ["SIGINT", 130],
    ["SIGTERM", 143],
    ["SIGHUP", 129],
  ];
  for (const [signal, expected] of ends) {
    const into = await folder(context);
    const { child, ended } = start(["convert", source, path.join(into, "x.gguf")]);
    await begun(into, child);
    child.kill(signal);
    const { status, stderr } = await ended;
    assert.deepEqual([status, stderr], [expected, "ternlight: interrupted\n"], signal);
    assert.deepEqual(await readdir(into), NOTHING, signal);
  }
  // Twice in a row is for the impatient.
  const into = await folder(context);
  const { child, ended } = start(["convert", source, path.join(into, "x.gguf")]);
  await begun(into, child);
  child.kill("SIGINT");
  child.kill("SIGINT");
  assert.equal((await ended).status, 130);
  assert.deepEqual(await readdir(into), NOTHING);
});

/** Waits until it writes; the file that it writes to is nobody else's to read. */
async function begun(into: string, child: ChildProcess): Promise<void> {
  while (child.exitCode === null) {
    const [part] = await readdir(into);
    if (part) {
      assert.match(part, /^\.ternlight-[0-9a-f]{32}\.part$/);
      const { mode } = await stat(path.join(into, part));
      if (process.platform !== "win32") assert.equal(mode & 0o777, 0o600);
      return;
    }
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  assert.fail("it ended before it began to write");
}

test("a failure in the middle leaves nothing behind", async (context) => {
  const files = await goldenFolder("models/bitnet_packed");
  const weights = files["model.safetensors"]!;
  // The last byte holds a code that is neither −1 nor 0 nor +1.
  weights.set([0xff], weights.length - 1);
  const into = await folder(context);
  const { message } = await failure(1, "convert", await folderOf(context, files), path.join(into, "x.gguf"));
  assert.match(message, /not ternary.*code 3/);
  assert.deepEqual(await readdir(into), NOTHING);
});

test("a file is replaced only if asked, and kept until the new one is whole", async (context) => {
  const source = goldenPath("models/bitnet_packed");
  const into = await folder(context);
  const out = path.join(into, "x.gguf");
  await writeFile(out, "mine");
  assert.match((await failure(1, "convert", source, out)).message, /x\.gguf exists; --force replaces it/);
  await failure(1, "convert", source, out, "--type", "q1_0", "--force");
  assert.equal(await readFile(out, "utf8"), "mine");
  await answer("convert", source, out, "--force");
  assert.equal((await readFile(out)).subarray(0, 4).toString(), "GGUF");
  const mode = 0o666 & ~process.umask();
  if (process.platform !== "win32") assert.equal((await stat(out)).mode & 0o777, mode, "as any new file");
  assert.deepEqual(await readdir(into), ["x.gguf"]);
  assert.equal((await failure(1, "convert", source, into)).code, "InvalidArgument");
  assert.match((await failure(2, "convert", out, out, "--force")).message, /is the model itself/);
  const device = path.join(into, "pipe");
  execFileSync("mkfifo", [device]);
  assert.match((await failure(1, "convert", source, device, "--force")).message, /no regular file/);
  assert.ok((await stat(device)).isFIFO());
  const nowhere = await failure(1, "convert", source, path.join(into, "no", "x.gguf"));
  assert.equal(nowhere.code, "Unwritable");
});
