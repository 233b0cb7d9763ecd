/** The examples in the types' documentation: each is a complete program, compiles under `strict`, and runs. */
import assert from "node:assert/strict";
import { mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { run } from "./support.mjs";

const pkg = fileURLToPath(new URL("../../", import.meta.url));
const root = path.join(pkg, "..");
const types = path.join(pkg, "dist", "types");

/** Each of these has an example somewhere. */
const SHOWN = [
  "load(",
  "canRun(",
  "inspect(",
  "cache.list(",
  "doctor(",
  ".generate(",
  ".chat(",
  ".session(",
  ".embed(",
];
SHOWN.push(".loadAdapter(");

/** The fenced blocks behind `@example`, without the comment's stars. */
export function examplesOf(text) {
  const comments = Array.from(text.matchAll(/\/\*\*([\s\S]*?)\*\//g), ([, comment]) =>
    comment.replace(/^[ \t]*\* ?/gm, ""),
  );
  return comments.flatMap((comment) =>
    Array.from(comment.matchAll(/@example\s*```ts\n([\s\S]*?)```/g), ([, program]) => program),
  );
}

async function allExamples() {
  const files = (await readdir(types, { recursive: true })).filter((name) => name.endsWith(".d.ts")).sort();
  const texts = await Promise.all(files.map((name) => readFile(path.join(types, name), "utf8")));
  return files.flatMap((file, at) => {
    const mentioned = texts[at].split("@example").length - 1;
    const found = examplesOf(texts[at]);
    assert.equal(found.length, mentioned, `${file}: every @example is a fenced block of ts`);
    return found.map((program) => ({ file, program }));
  });
}

/** A LoRA adapter of the demo model that adds nothing: what the example of `loadAdapter` calls "my-adapter/". */
async function writeAdapter(folder) {
  const { hidden_size: hidden } = JSON.parse(
    await readFile(path.join(pkg, "models", "ternlight-demo", "config.json"), "utf8"),
  );
  const rank = 4;
  const matrix = "base_model.model.model.layers.0.self_attn.q_proj";
  const bytes = 4 * rank * hidden;
  const header = JSON.stringify({
    [`${matrix}.lora_A.weight`]: { dtype: "F32", shape: [rank, hidden], data_offsets: [0, bytes] },
    [`${matrix}.lora_B.weight`]: { dtype: "F32", shape: [hidden, rank], data_offsets: [bytes, 2 * bytes] },
  });
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(header.length));
  await mkdir(folder);
  await writeFile(
    path.join(folder, "adapter_model.safetensors"),
    Buffer.concat([length, Buffer.from(header), Buffer.alloc(2 * bytes)]),
  );
  const config = { peft_type: "LORA", r: rank, lora_alpha: 8, target_modules: ["q_proj"] };
  await writeFile(path.join(folder, "adapter_config.json"), JSON.stringify(config));
}

test("an example is found behind its tag alone", () => {
  const text =
    "/**\n * A.\n *\n * @example\n * ```ts\n * a();\n *\n * b();\n * ```\n */\n/** ```ts\n * c();\n * ``` */";
  assert.deepEqual(examplesOf(text), ["a();\n\nb();\n"]);
});

test("the examples of the types compile and run", async (context) => {
  const folder = await mkdtemp(path.join(tmpdir(), "ternlight-examples-"));
  context.after(() => rm(folder, { recursive: true, force: true }));
  await mkdir(path.join(folder, "node_modules", "@types"), { recursive: true });
  await symlink(pkg, path.join(folder, "node_modules", "ternlight"));
  await symlink(path.join(root, "node_modules", "@types", "node"), path.join(folder, "node_modules", "@types", "node"));
  await writeFile(path.join(folder, "package.json"), JSON.stringify({ type: "module" }));
  await writeAdapter(path.join(folder, "my-adapter"));

  const examples = await allExamples();
  const all = examples.map(({ program }) => program).join("\n");
  for (const call of SHOWN) assert.ok(all.includes(call), `no example shows ${call})`);
  const programs = examples.map(({ file, program }, i) => ({ file, program, name: `example-${i}.ts` }));
  await Promise.all(programs.map(({ name, program }) => writeFile(path.join(folder, name), program)));

  const compilerOptions = {
    strict: true,
    noUncheckedIndexedAccess: true,
    exactOptionalPropertyTypes: true,
    target: "es2022",
    module: "nodenext",
    types: ["node"],
    noEmit: true,
    skipLibCheck: true,
  };
  await writeFile(path.join(folder, "tsconfig.json"), JSON.stringify({ compilerOptions, include: ["*.ts"] }));
  await run(path.join(root, "node_modules", ".bin", "tsc"), ["--project", folder]).catch(({ stdout }) =>
    assert.fail(stdout),
  );

  for (const { file, name, program } of programs) {
    await context.test(`${file}: ${SHOWN.findLast((call) => program.includes(call))})`, async () => {
      const env = { ...process.env, XDG_CACHE_HOME: path.join(folder, "cache") };
      await run(process.execPath, [name], { cwd: folder, env, timeout: 120_000 });
    });
  }
});
