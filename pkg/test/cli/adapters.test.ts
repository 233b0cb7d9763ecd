import assert from "node:assert/strict";
import { test } from "node:test";
import { failure, json, path } from "./support/ternlight.ts";

const MODEL = path("tests/golden/gguf/llama_f32.F32.gguf");
const [PEFT, GGUF] = [path("tests/golden/lora/llama_f32.lora"), path("tests/golden/lora/llama_f32.lora.gguf")];
const ids = ["--ids", "5,6,7,8,9,10", "--threads", "1"];

test("--adapter, once and several times, with scales", async () => {
  const logits = async (...more: string[]): Promise<number[]> =>
    (await json("logits", MODEL, ...ids, ...more)).logits[0];
  const [plain, one, half] = [
    await logits(),
    await logits("--adapter", PEFT),
    await logits("--adapter", `${GGUF}=0.5`),
  ];
  const off = (a: number[], b: number[]) => a.reduce((most, value, i) => Math.max(most, Math.abs(value - b[i]!)), 0);
  assert.ok(off(plain, one) > 0.5 && off(plain, half) > 0.2 && off(one, half) > 0.2);
  assert.ok(off(one, await logits("--adapter", `${GGUF}=0.5`, "--adapter", `${PEFT}=0.5`)) < 1e-3);
  assert.deepEqual(await logits("--adapter", `${PEFT}=0`), plain);

  const run = async (...more: string[]) =>
    (await json("run", MODEL, ...ids, "-n", "16", "--temp", "0", ...more)).tokens;
  assert.notDeepEqual(await run(), await run("--adapter", PEFT));
});

test("an adapter that does not fit is refused", async () => {
  const { code, detail } = await failure(
    1,
    "run",
    MODEL,
    ...ids,
    "--adapter",
    path("tests/golden/lora/bitnet_packed.lora"),
  );
  assert.equal(code, "ShapeMismatch");
  assert.match(String(detail.tensor), /lora_A/);
});
