/** What decides whether a change is good: a failure of any kind is seen, counted and ends with a status of its own. */
import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { counted, runPart } from "../../../scripts/parts.mjs";
import { run } from "./support.mjs";

const all = fileURLToPath(new URL("../all.mjs", import.meta.url));
const script = fileURLToPath(new URL("../../../scripts/check_commits.sh", import.meta.url));
const part = (program) => runPart({ name: "gates test", command: [process.execPath, "--eval", program] });

async function folder(context) {
  const made = await mkdtemp(path.join(tmpdir(), "ternlight-gates-"));
  context.after(() => rm(made, { recursive: true, force: true }));
  return made;
}

test("tests are counted as Rust's and Node's runners print them", () => {
  const rust =
    "test result: ok. 12 passed; 0 failed; 3 ignored\n\ntest result: FAILED. 4 passed; 2 failed; 0 ignored\n";
  assert.deepEqual(counted(rust), { passed: 16, failed: 2 });
  assert.deepEqual(counted("ℹ pass 7\nℹ fail 1\nℹ cancelled 2\n"), { passed: 7, failed: 3 });
});

test("a part fails by its status, by a signal, and where its program is absent", async () => {
  const end = async (program) => {
    const { passed, failed, ended } = await part(program);
    return [passed, failed, ended];
  };
  assert.deepEqual(await end("console.log('test result: ok. 3 passed; 0 failed')"), [3, 0, 0]);
  assert.deepEqual(await end(""), [1, 0, 0]);
  assert.deepEqual(await end("process.exitCode = 3"), [0, 1, 3]);
  assert.deepEqual(await end("console.log('ℹ pass 5'); process.kill(process.pid, 'SIGTERM')"), [5, 1, "SIGTERM"]);
  assert.equal((await runPart({ name: "gates test", command: ["no-such-program"] })).failed, 1);
});

test("a test file that dies by a signal is a failure, and is not run again", async (context) => {
  const place = await folder(context);
  const file = path.join(place, "dies.test.mjs");
  const runs = path.join(place, "runs");
  await writeFile(
    file,
    `import { appendFileSync } from "node:fs";
     import { test } from "node:test";
     appendFileSync(${JSON.stringify(runs)}, "one ");
     test("dies", () => process.kill(process.pid, "SIGKILL"));`,
  );
  const env = { ...process.env };
  // A runner inside a runner would report to it.
  delete env.NODE_TEST_CONTEXT;
  const { code, stdout } = await run(process.execPath, [all, file], { env }).catch((error) => error);
  assert.equal(code, 1);
  assert.match(stdout, /dies\.test\.mjs ended with code null, signal SIGKILL/);
  assert.equal((await run("cat", [runs])).stdout, "one ");
});

test("long subjects of commits are found, from a base on", async (context) => {
  const place = await folder(context);
  const git = (...args) => run("git", ["-C", place, "-c", "user.name=a", "-c", "user.email=a@b", ...args]);
  const commit = (message) => git("commit", "--quiet", "--allow-empty", "--message", message);
  const check = (...args) => run(path.join(place, "scripts", "check_commits.sh"), args);
  await git("init", "--quiet");
  await run("mkdir", [path.join(place, "scripts")]);
  await run("cp", [script, path.join(place, "scripts")]);
  await commit("x".repeat(90));
  await commit("x".repeat(71));
  await check();
  await commit("é".repeat(71));
  await check("HEAD~2");
  await commit("y".repeat(72));
  await assert.rejects(check("HEAD~1"), { code: 1, stdout: /subject of 72 characters, expected under 72: y+/ });
});
