/** What is missing, wrong or contradictory in a model's files is an error that names it. */

import assert from "node:assert/strict";
import path from "node:path";
import { before, test } from "node:test";
import { inspect, type ModelSource } from "ternlight";
import { blobs, dropped, folderOf, goldenFile, goldenFolder } from "./support/models.ts";
import { serveFiles } from "./support/server.ts";
import { type Files, json, partName, type SplitKeys, shardSafetensors, splitGguf } from "./support/split.ts";

const INDEX = "model.safetensors.index.json";
const [first, second, third] = [0, 1, 2].map((index) => partName("tiny", index, 3, "gguf")) as [string, string, string];

let whole: Uint8Array<ArrayBuffer>;
let parts: Files;
let shards: Files;
let side: Files;
let weightMap: Record<string, string>;

before(async () => {
  whole = await goldenFile("gguf/llama_bitlinear.TQ2_0.gguf");
  parts = splitGguf(whole, "tiny", 3);
  const { "model.safetensors": single, ...rest } = await goldenFolder("models/bitnet_packed");
  side = rest;
  ({ files: shards, weightMap } = shardSafetensors(single!, 2));
});

async function refused(source: ModelSource, code: string, message: RegExp, detail: object = {}): Promise<void> {
  await assert.rejects(inspect(source), (error: Error & { code: string; detail: object }) => {
    assert.equal(error.code, code, error.message);
    assert.match(error.message, message);
    assert.partialDeepStrictEqual(error.detail, detail);
    return true;
  });
}

test("a missing part is named, by every route", async (context) => {
  const { [second]: _, ...rest } = parts;
  const folder = await folderOf(context, rest);
  const { url } = await serveFiles(context, rest);
  for (const source of [folder, path.join(folder, third), blobs(rest), dropped(rest), url + first]) {
    await refused(source, "NotFound", /of the model's 3 files there is no tiny-00002-of-00003\.gguf$/, {
      file: second,
    });
  }
  const alone = new File([parts[second]!], second);
  const detail = { missing: [first, third] };
  await refused(alone, "NotFound", /a single file was given: .*there is no tiny-00001-of-.*, tiny-00003-of-/, detail);
  await refused(shardFile(2), "NotFound", /there is no model-00001-of-00002\.safetensors/);
  // A name that says nothing: the header does.
  await refused(new Blob([parts[second]!]), "NotFound", /of the model's 3 parts there is no 1, 3/, {
    key: "split.count",
  });
});

const shardFile = (number: number): File => {
  const name = partName("model", number - 1, 2, "safetensors");
  return new File([shards[name]!], name);
};

test("parts that do not fit together", async () => {
  const split = (change: (own: SplitKeys) => SplitKeys) => blobs(splitGguf(whole, "tiny", 3, change));
  const key = (name: string) => ({ key: name });
  const twice = blobs({ ...parts, [third]: parts[second]! });
  await refused(twice, "BadHeader", /part 2 of 3 is given twice/, key("split.no"));
  const count = split((own) => (own.no === 2 ? { ...own, count: 4 } : own));
  await refused(count, "BadHeader", /wrong number of parts: expected 3, found 4/, key("split.count"));
  const number = split((own) => (own.no === 2 ? { ...own, no: 3 } : own));
  await refused(number, "BadHeader", /wrong part number: expected 0 to 2, found 3/, key("split.no"));
  const tensors = split((own) => ({ ...own, tensors: own.tensors + 1 }));
  await refused(tensors, "BadHeader", /wrong number of tensors in all parts/, key("split.tensors.count"));
  const mixed = blobs({ ...parts, [third]: shards["model-00001-of-00002.safetensors"]! });
  await refused(mixed, "BadHeader", /GGUF and safetensors are not parts of one model/);
});

test("folders without one model", async (context) => {
  const both = { "a.gguf": whole, ...parts };
  const several = /has 2 models, name one of them: a\.gguf, tiny-00001-of-00003\.gguf/;
  await refused(await folderOf(context, both), "InvalidArgument", several, { option: "source" });
  await refused(blobs(both), "InvalidArgument", several);
  await refused(dropped({ ...side }), "NotFound", /no GGUF file and no safetensors/);
  await refused(path.join(await folderOf(context, {}), "none/"), "NotFound", /there is no such folder/);
  const same = [new File([whole], "a.gguf"), new File([whole], "a.gguf")];
  await refused(same, "InvalidArgument", /two of the files given are called "a\.gguf"/);
  await refused([{}] as never, "InvalidArgument", /source\["0"\] must be a URL.*, not \{\}/);
});

test("an index that does not tell the truth", async () => {
  const refuseMap = async (map: unknown, code: string, message: RegExp, detail: object = {}) =>
    refused(blobs({ ...side, ...shards, [INDEX]: json({ weight_map: map }) }), code, message, detail);
  const [tensor, file] = Object.entries(weightMap)[0]!;
  const other = Object.values(weightMap).find((name) => name !== file)!;

  const missing = /the index says that this file has the tensor/;
  await refuseMap({ ...weightMap, "model.more": file }, "MissingTensor", missing, { tensor: "model.more", file });
  await refuseMap({ ...weightMap, [tensor]: other }, "MissingTensor", missing, { tensor, file: other });
  const third = { ...weightMap, more: "model-00003-of-00003.safetensors" };
  await refuseMap(third, "NotFound", /of the model's 3 files there is no model-00003-of-00003/);
  for (const name of [
    "../model.safetensors",
    "/etc/model.safetensors",
    "a\\b.safetensors",
    ".safetensors",
    "x.gguf",
    7,
  ]) {
    await refuseMap({ ...weightMap, [tensor]: name }, "BadHeader", /is no name of a safetensors file/, { tensor });
  }
  await refuseMap([], "BadHeader", /wrong number of files/);
  await refuseMap(undefined, "BadHeader", /there is no weight_map/, { key: "weight_map" });
  const text = blobs({ ...side, ...shards, [INDEX]: new TextEncoder().encode("{") });
  await refused(text, "BadHeader", /index\.json is no JSON object/, { file: INDEX });

  const { [tensor]: _, ...less } = weightMap;
  const { warnings } = await inspect(blobs({ ...side, ...shards, [INDEX]: json({ weight_map: less }) }));
  assert.ok(warnings.includes(`the index does not know of ${tensor}`), warnings.join());
});

test("a file of JSON that holds something else than an object", async () => {
  for (const [name, text] of [
    [INDEX, "[]"],
    ["tokenizer.json", "null"],
    ["tokenizer_config.json", "0"],
  ] as const) {
    const source = blobs({ ...side, ...shards, [name]: new TextEncoder().encode(text) });
    await refused(source, "BadHeader", /is no JSON object: it is other JSON/, { file: name });
  }
});

test("a tensor that two files have", async () => {
  const twice = { ...shards, "model-00002-of-00002.safetensors": shards["model-00001-of-00002.safetensors"]! };
  await refused(blobs({ ...side, ...twice }), "BadHeader", /two files have this tensor/);
});

test("a count of parts that nobody has", async () => {
  await refused(new File([whole], "x-00001-of-99999.gguf"), "BadHeader", /a model in 99999 parts|99999/);
});

test("what is no source at all", async () => {
  const option = { option: "source" };
  await refused([null] as never, "InvalidArgument", /source\["0"\] must be a URL.*, not null/, option);
  await refused([undefined] as never, "InvalidArgument", /, not undefined/, option);
  await refused(5 as never, "InvalidArgument", /source must be a URL.*, not 5$/, { ...option, found: "5" });
  await refused("", "InvalidArgument", /, not ""/, option);
  const post = new Request("http://a.b/x.gguf", { method: "POST" });
  await refused(post, "InvalidArgument", /source\.method must be GET, not "POST"/, option);
  for (const address of ["file://host/x", "file:///a%2Fx"]) {
    await refused(address, "InvalidArgument", /^source: file:\/\//, { ...option, found: address });
  }
});
