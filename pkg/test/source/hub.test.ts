/** Names of models on a hub, against one on loopback that speaks Hugging Face's interface. */

import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import type { ServerResponse } from "node:http";
import { tmpdir } from "node:os";
import path from "node:path";
import { before, type TestContext, test } from "node:test";
import { type EngineError, inspect, load } from "ternlight";
import { chosen } from "../../src/source/hub_choice.ts";
import { parseHubName } from "../../src/source/hub_name.ts";
import { ternlight } from "../cli/support/ternlight.ts";
import { type HubOptions, startHub } from "./support/hub.ts";
import { goldenFile, goldenFolder, goldenPath, logitsOf } from "./support/models.ts";
import { type Files, splitGguf } from "./support/split.ts";

const TOKEN = "hf_secret";
let tiny: Uint8Array<ArrayBuffer>;
let dense: Uint8Array<ArrayBuffer>;
let folder: Files;

before(async () => {
  [tiny, dense] = [await goldenFile("gguf/llama_bitlinear.I2_S.gguf"), await goldenFile("gguf/llama_bf16.Q4_0.gguf")];
  folder = await goldenFolder("models/bitnet_packed");
});

const repository = () => ({
  revisions: {
    main: { "README.md": tiny.subarray(0, 9), "model-Q4_0.gguf": dense, "model-i2_s.gguf": tiny },
    v1: { "model-Q4_0.gguf": dense },
    "refs/pr/1": { "sub/other.gguf": dense },
  },
});

async function hub(context: TestContext, options: Partial<HubOptions> = {}) {
  delete process.env.HF_TOKEN;
  context.after(() => {
    delete process.env.HF_TOKEN;
  });
  return startHub(context, { repositories: { "owner/repo": repository() }, token: TOKEN, ...options });
}

async function failure(work: Promise<unknown>, code: string, message: RegExp): Promise<EngineError> {
  const error = await work.then(
    () => assert.fail("it was found"),
    (error) => error as EngineError,
  );
  assert.deepEqual([error.name, error.code], ["EngineError", code], error.message);
  assert.match(error.message, message);
  assert.ok(!JSON.stringify([error.message, error.detail, error.stack]).includes(TOKEN), "it tells the token");
  return error;
}

test("a repository is listed, the ternary file taken, and the choice told", async (context) => {
  const { asked } = await hub(context);
  const model = await load("hf:owner/repo", { threads: 1, cache: false });
  try {
    assert.ok("I2_S" in model.info.kinds);
    const told = model.info.warnings.filter((one) => one.startsWith("hf:owner/repo"));
    assert.equal(told.length, 1);
    assert.match(told[0]!, /model-i2_s\.gguf was taken of 2 models.*hf:owner\/repo\/FILE.*model-Q4_0\.gguf/);
  } finally {
    await model.close();
  }
  assert.ok(
    asked.some(({ at }) => at === "store"),
    "files lie behind a redirect",
  );
  assert.ok(asked.every(({ authorization }) => authorization === undefined));
});

test("files, folders and revisions are found by name", async (context) => {
  await hub(context);
  const kind = async (name: string) => Object.keys((await inspect(name)).kinds);
  assert.ok((await kind("hf:owner/repo/model-Q4_0.gguf")).includes("Q4_0"));
  assert.ok((await kind("hf:owner/repo@v1")).includes("Q4_0"));
  assert.ok((await kind("hf:owner/repo@main")).includes("I2_S"));
  assert.ok((await kind("hf:owner/repo@v1/model-Q4_0.gguf")).includes("Q4_0"));
  assert.ok((await kind("hf:owner/repo/model-Q4_0.gguf@v1")).includes("Q4_0"));
  assert.ok((await kind("hf:owner/repo@refs/pr/1")).includes("Q4_0"));
  assert.ok((await kind("hf:owner/repo@refs/pr/1/sub/other.gguf")).includes("Q4_0"));
  assert.ok((await kind("hf:owner/repo/sub@refs/pr/1")).includes("Q4_0"));
});

test("folders of safetensors and files in parts load as from anywhere else", async (context) => {
  const parts = splitGguf(tiny, "model", 3);
  await hub(context, {
    repositories: { "owner/folder": { revisions: { main: folder } }, "owner/parts": { revisions: { main: parts } } },
    pageLength: 2,
  });
  assert.deepEqual(await logitsOf("hf:owner/folder"), await logitsOf(`${goldenPath("models/bitnet_packed")}/`));
  assert.deepEqual(await logitsOf("hf:owner/parts"), await logitsOf(goldenPath("gguf/llama_bitlinear.I2_S.gguf")));
});

test("a hub without lists is asked for its description", async (context) => {
  const { asked } = await hub(context, { noLists: true });
  assert.ok("I2_S" in (await inspect("hf:owner/repo")).kinds);
  assert.ok(asked.some(({ path }) => path === "/api/models/owner/repo/revision/main"));
});

test("the token goes to the hub and nowhere else", async (context) => {
  const gated = { ...repository(), gated: true };
  const secret = { ...repository(), secret: true };
  const { asked } = await hub(context, { repositories: { "owner/gated": gated, "owner/secret": secret } });
  process.env.HF_TOKEN = TOKEN;
  for (const name of ["hf:owner/gated", "hf:owner/secret"]) assert.ok("I2_S" in (await inspect(name)).kinds);
  const sent = (at: string) => asked.filter((one) => one.at === at).map(({ authorization }) => authorization);
  assert.ok(sent("hub").length > 0 && sent("hub").every((one) => one === `Bearer ${TOKEN}`));
  assert.ok(sent("store").length > 0 && sent("store").every((one) => one === undefined));
  // Another host is not the hub.
  const other = await startHub(context, { repositories: { "owner/repo": repository() } });
  await inspect(`${other.url}/owner/repo/resolve/main/model-i2_s.gguf`);
  assert.ok(other.asked.length > 0 && other.asked.every(({ authorization }) => authorization === undefined));
});

test("what is missing, private or gated gets words that help", async (context) => {
  const gated = { ...repository(), gated: true };
  const secret = { ...repository(), secret: true };
  const repositories = { "owner/repo": repository(), "owner/gated": gated, "owner/secret": secret };
  const { url } = await hub(context, { repositories });
  const fails = (name: string, code: string, message: RegExp) => failure(inspect(name), code, message);
  await fails("hf:owner/nothing", "NotFound", /shows no model owner\/nothing: it is misspelt.*HF_TOKEN must be set/);
  await fails("hf:owner/secret", "NotFound", /shows no model owner\/secret/);
  const { detail } = await fails("hf:owner/gated", "Network", /owner\/gated is gated.*accept the terms.*set HF_TOKEN/);
  assert.equal(detail.option, "source");
  await fails("hf:owner/gated/model-i2_s.gguf", "Network", /is gated/);
  await fails("hf:owner/repo@v9", "NotFound", /has no revision "v9"/);
  await fails("hf:owner/repo/absent.gguf", "NotFound", /has no such file/);
  await fails("hf:owner/repo/absent", "NotFound", /no GGUF file and no safetensors/);
  process.env.HF_TOKEN = "hf_wrong";
  await fails("hf:owner/repo", "NotFound", /does not accept the token in HF_TOKEN/);
  process.env.HF_TOKEN = TOKEN;
  await fails("hf:owner/nothing", "NotFound", /the token in HF_TOKEN may not read it/);
  await failure(load("hf:owner/nothing"), "NotFound", new RegExp(url));
  delete process.env.HF_TOKEN;
  const many = await hub(context, { repositories, answer: (_, response) => tooMany(response) });
  const limited = await failure(
    inspect("hf:owner/repo"),
    "Network",
    /too many requests: try again later, or set HF_TOKEN/,
  );
  assert.equal(limited.detail.status, 429);
  assert.equal(many.asked.length, 1);
});

const tooMany = (response: ServerResponse) => {
  response.writeHead(429, { "retry-after": "3600" }).end();
  return true;
};

test("faults of a hub are tried again, or told", async (context) => {
  let busy = 2;
  const answers: Record<string, () => [number, Record<string, string>, string]> = {
    "owner/busy": () => (busy-- > 0 ? [503, { "retry-after": "0" }, "busy"] : [0, {}, ""]),
    "owner/page": () => [200, { "content-type": "text/html" }, "<!doctype html>"],
    "owner/odd": () => [200, {}, '{"a":1}'],
    "owner/nasty": () => [200, {}, JSON.stringify([{ type: "file", path: "../../x.gguf" }, { path: 5 }, null])],
    "owner/full": () => [429, { "retry-after": "3600" }, "later"],
    "owner/wide": () => [
      200,
      { link: '<http://127.0.0.1:9/steal>; rel="next"' },
      JSON.stringify([{ path: "a.gguf", type: "file" }]),
    ],
  };
  const { asked } = await hub(context, {
    repositories: { "owner/busy": repository(), "owner/wide": { revisions: { main: { "a.gguf": tiny } } } },
    answer(request, response) {
      const repo = Object.keys(answers).find((name) => request.url!.startsWith(`/api/models/${name}/`));
      const [status, headers, body] = repo ? answers[repo]!() : [0, {}, ""];
      if (status) response.writeHead(status, headers).end(body);
      return status !== 0;
    },
  });
  assert.ok("I2_S" in (await inspect("hf:owner/busy")).kinds);
  await failure(inspect("hf:owner/page"), "Network", /not JSON/);
  await failure(inspect("hf:owner/odd"), "Network", /no list of files/);
  await failure(inspect("hf:owner/nasty"), "NotFound", /no GGUF file and no safetensors among the 0 files/);
  await failure(inspect("hf:owner/full"), "Network", /too many requests/);
  process.env.HF_TOKEN = TOKEN;
  assert.ok("I2_S" in (await inspect("hf:owner/wide")).kinds, "a list goes on at its own host alone");
  assert.ok(asked.every(({ path }) => !path.includes("..")));
});

test("an abort ends the question", async (context) => {
  await hub(context, { answer: () => true });
  const abort = new AbortController();
  const loading = load("hf:owner/repo", { signal: abort.signal });
  setTimeout(() => abort.abort(new Error("enough")), 50);
  await assert.rejects(loading, { message: "enough" });
});

test("what is in the cache is found where the hub cannot be reached", async (context) => {
  const cache = await mkdtemp(path.join(tmpdir(), "ternlight-"));
  context.after(() => rm(cache, { recursive: true, force: true }));
  let down = false;
  await hub(context, {
    answer(request) {
      if (down) request.socket.destroy();
      return down;
    },
  });
  const first = await load("hf:owner/repo", { threads: 1, cache });
  await first.close();
  down = true;
  const again = await load("hf:owner/repo", { threads: 1, cache });
  assert.ok("I2_S" in again.info.kinds);
  await again.close();
  await failure(load("hf:owner/repo", { threads: 1, cache: false }), "Network", /api\/models/);
});

test("the command line takes names, tells the choice, and shows no token", async (context) => {
  const { url } = await hub(context, { repositories: { "owner/repo": { ...repository(), gated: true } } });
  assert.equal(process.env.HF_ENDPOINT, url);
  process.env.HF_TOKEN = TOKEN;
  const ran = await ternlight("run", "hf:owner/repo", "-p", "one", "-n", "2", "--no-cache", "--threads", "1");
  assert.equal(ran.status, 0, ran.stderr);
  assert.match(ran.stderr, /model-i2_s\.gguf was taken of 2 models/);
  assert.match(ran.stderr, /to talk to the model: ternlight chat hf:owner\/repo$/m);
  const out = path.join(await mkdtemp(path.join(tmpdir(), "ternlight-")), "out.gguf");
  context.after(() => rm(path.dirname(out), { recursive: true, force: true }));
  const converted = await ternlight("convert", "hf:owner/repo/model-i2_s.gguf", out);
  assert.equal(converted.status, 0, converted.stderr);
  delete process.env.HF_TOKEN;
  const gated = await ternlight("inspect", "hf:owner/repo", "--debug");
  assert.equal(gated.status, 1);
  assert.match(gated.stderr, /is gated/);
  for (const { stdout, stderr } of [ran, converted, gated]) assert.ok(!`${stdout}${stderr}`.includes(TOKEN));
});

test("HF_ENDPOINT must be an address", async (context) => {
  await hub(context);
  process.env.HF_ENDPOINT = "my hub";
  await failure(inspect("hf:owner/repo"), "InvalidArgument", /HF_ENDPOINT/);
});

test("names are read as they are meant, and others refused", async () => {
  const read = (name: string) => {
    const { repo, revision, path } = parseHubName(name);
    return [repo, revision, path];
  };
  assert.deepEqual(read("hf:a/b"), ["a/b", "main", ""]);
  assert.deepEqual(read("hf://a/b"), ["a/b", "main", ""]);
  assert.deepEqual(read("hf:a/b/"), ["a/b", "main", ""]);
  assert.deepEqual(read("hf:a/b.c-d_e/f g.gguf"), ["a/b.c-d_e", "main", "f g.gguf"]);
  assert.deepEqual(read("hf:a/b/c/d.gguf"), ["a/b", "main", "c/d.gguf"]);
  assert.deepEqual(read("hf:a/b/c"), ["a/b", "main", "c/"]);
  assert.deepEqual(read("hf:a/b@v1.0"), ["a/b", "v1.0", ""]);
  assert.deepEqual(read("hf:a/b@feature/x"), ["a/b", "feature/x", ""]);
  assert.deepEqual(read("hf:a/b@v1/c/d.gguf"), ["a/b", "v1", "c/d.gguf"]);
  assert.deepEqual(read("hf:a/b@refs/pr/3/d.gguf"), ["a/b", "refs/pr/3", "d.gguf"]);
  assert.deepEqual(read("hf:a/b/d.gguf@v1"), ["a/b", "v1", "d.gguf"]);
  const wrong = [
    "hf:",
    "hf:a",
    "hf:a/",
    "hf:/b",
    "hf:a/b@",
    "hf:a/..",
    "hf:a/b/../c.gguf",
    "hf:a/b@../x",
    "hf:a b/c",
    "hf:a/b/c.gguf?x",
  ];
  for (const name of wrong) {
    assert.throws(() => parseHubName(name), { code: "InvalidArgument" }, name);
    await failure(inspect(name), "InvalidArgument", /source must be hf:owner\/repo/);
  }
});

test("of several models the one is taken that is best here", () => {
  const name = parseHubName("hf:a/b");
  const first = (...names: string[]) => chosen(name, names).files[0];
  assert.equal(first("m-Q4_K_M.gguf", "m-TQ1_0.gguf", "m-TQ2_0.gguf", "m-F16.gguf"), "m-TQ2_0.gguf");
  assert.equal(first("m-Q2_K.gguf", "m-Q2_0.gguf", "m-Q8_0.gguf"), "m-Q2_0.gguf");
  assert.equal(first("m-Q1_0.gguf", "ggml-model-i2_s.gguf"), "ggml-model-i2_s.gguf");
  assert.equal(first("m-bf16.gguf", "m-Q8_0.gguf", "m-Q4_K_M.gguf"), "m-Q4_K_M.gguf");
  assert.equal(first("mmproj-m-F16.gguf", "m-Q8_0.gguf"), "m-Q8_0.gguf");
  // As they lie in the repositories of Bonsai 27B.
  const drafts = [
    "B-27B-dspark-Q4_1.gguf",
    "B-27B-dspark-bf16.gguf",
    "B-27B-dspark-dflash-Q4_0.gguf",
    "mtp-m-Q4_0.gguf",
  ];
  const bonsai = chosen(name, [...drafts, "B-27B-mmproj-Q8_0.gguf", "B-27B-Q8_0.gguf"]);
  assert.deepEqual([bonsai.files, bonsai.other], [["B-27B-Q8_0.gguf"], []]);
  assert.equal(first("m-dspark-merged-Q4_1.gguf"), "m-dspark-merged-Q4_1.gguf", "made of one, and a model");
  assert.equal(first("x/m-Q8_0.gguf", "y/m-TQ2_0.gguf"), "y/m-TQ2_0.gguf");
  assert.equal(first("m-Q8_0-00002-of-00002.gguf", "m-Q8_0-00001-of-00002.gguf"), "m-Q8_0-00001-of-00002.gguf");
  assert.equal(first("model.safetensors", "m-TQ2_0.gguf"), "m-TQ2_0.gguf");
  assert.deepEqual(chosen(name, ["config.json", "model.safetensors", "x.bin"]).files, [
    "model.safetensors",
    "config.json",
  ]);
  assert.equal(chosen(name, ["m-TQ2_0.gguf"]).other.length, 0);
});
