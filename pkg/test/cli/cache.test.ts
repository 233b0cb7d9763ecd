/** `ternlight cache`, and what a load from a server leaves for the next one. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { folderOf, goldenFile } from "../source/support/models.ts";
import { serveFiles } from "../source/support/server.ts";
import { done, failure, json } from "./support/ternlight.ts";

test("what run brings is listed, is not asked for again, and can be deleted", async (context) => {
  const tiny = await goldenFile("gguf/llama_bitlinear.TQ2_0.gguf");
  const announce = (headers: Record<string, string>) => ({ ...headers, etag: '"1"' });
  const { url, asked } = await serveFiles(context, { "tiny.gguf": tiny }, { announce });
  const cache = ["--cache", await folderOf(context, {})];
  const say = () =>
    done("run", `${url}tiny.gguf`, "--ids", "1,2", "-n", "4", "--temp", "0", "--threads", "1", ...cache);
  const first = await say();
  asked.length = 0;
  assert.equal((await say()).stdout, first.stdout);
  assert.deepEqual(
    asked.map(({ method }) => method),
    ["HEAD"],
  );

  const { stdout, stderr } = await done("cache", "list", ...cache);
  assert.match(stdout, /^ +[\d.]+ kB {2}http:\/\/127\.0\.0\.1:\d+\/tiny\.gguf\n$/);
  assert.match(stderr, /^1 file, /);
  const { files } = await json("cache", "list", ...cache);
  assert.deepEqual([files[0].kept, files[0].complete], [tiny.length, true]);
  await failure(2, "cache", "delete", ...cache);
  await failure(2, "cache", "delete", "tiny.gguf", ...cache);
  await failure(2, "run", url, "-p", "x", "--no-cache", ...cache);
  assert.deepEqual(await json("cache", "delete", url, ...cache), { deleted: 1 });
  assert.deepEqual(await json("cache", "delete", "--all", ...cache), { deleted: 0 });
});
