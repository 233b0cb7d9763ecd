import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { DEMO, done, failure, json } from "./support/ternlight.ts";

const RUN = ["run", DEMO, "-p", "Once upon a time", "-n", "100", "--seed", "1", "--threads", "1"];
const SCHEMA = '{"type":"array","items":{"enum":["fox","bear"]},"minItems":1,"maxItems":2}';

test("run keeps to a schema, a pattern or a grammar, as they are or in files", async (context) => {
  const folder = await mkdtemp(join(tmpdir(), "ternlight-"));
  context.after(() => rm(folder, { recursive: true }));
  const file = async (name: string, text: string) => {
    await writeFile(join(folder, name), text);
    return join(folder, name);
  };
  const schema = await file("schema.json", SCHEMA);
  const answers = await Promise.all([
    json(...RUN, "--json-schema", SCHEMA),
    json(...RUN, "--json-schema", schema),
    json(...RUN, "--grammar", await file("g.lark", 'start: " so" " very"~2..3 " long"')),
  ]);
  const [direct, read, long] = answers;
  for (const name of JSON.parse(direct.text)) assert.match(name, /^(fox|bear)$/);
  assert.equal(direct.text, read.text);
  assert.match(long.text, /^ so( very){2,3} long$/);
  assert.deepEqual(
    answers.map(({ finishReason }) => finishReason),
    ["stop", "stop", "stop"],
  );
  assert.match((await done(...RUN, "--regex", " (yes|no)")).stdout, /^ (yes|no)\n$/);
});

test("what cannot be kept to ends with 1 and says where", async () => {
  const not = await failure(1, ...RUN, "--json-schema", '{"items":{"not":{}}}');
  assert.deepEqual([not.code, not.detail.place], ["BadConstraint", "#/items"]);
  const missing = await failure(1, ...RUN, "--grammar", "nowhere.lark");
  assert.equal(missing.code, "NotFound");
});
