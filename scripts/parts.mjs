/** Programs that run as named parts of something longer: timed, counted, their output kept. */
import { spawn } from "node:child_process";
import { createWriteStream, mkdirSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

export const root = fileURLToPath(new URL("../", import.meta.url));
const logs = path.join(root, "target", "logs");

/** Seconds and minutes for people: `4.2 s`, `3 min 05 s`. */
export function duration(ms) {
  const seconds = ms / 1000;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  return `${Math.floor(seconds / 60)} min ${String(Math.floor(seconds % 60)).padStart(2, "0")} s`;
}

/** How test programs sum up: Rust's (once per test binary) and Node's. */
const summaries = [
  {
    passed: /^test result: \w+\. (\d+) passed; \d+ failed/gm,
    failed: /^test result: \w+\. \d+ passed; (\d+) failed/gm,
  },
  { passed: /^ℹ pass (\d+)/gm, failed: /^ℹ (?:fail|cancelled) (\d+)/gm },
];

/** The tests that a program's output counts. */
export function counted(output) {
  const sum = (pattern) =>
    Array.from(output.matchAll(pattern), ([, count]) => Number(count)).reduce((a, b) => a + b, 0);
  const total = (key) => summaries.map((patterns) => sum(patterns[key])).reduce((a, b) => a + b, 0);
  return { passed: total("passed"), failed: total("failed") };
}

/**
 * Runs one part, `{ name, command }`. What it prints goes to target/logs, and to the terminal as well where it is to be
 * shown. A part that counts no tests counts as one; one that ends in another way than its tests do has failed.
 */
export async function runPart({ name, command }, { show = false } = {}) {
  mkdirSync(logs, { recursive: true });
  const file = path.join(logs, `${name.replace(/[^\w-]+/g, "-")}.log`);
  const log = createWriteStream(file);
  const start = performance.now();
  let output = "";
  const [program, ...args] = command;
  const ended = await new Promise((resolve) => {
    const child = spawn(program, args, { cwd: root, stdio: ["ignore", "pipe", "pipe"] });
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding("utf8").on("data", (text) => {
        output += text;
        log.write(text);
        if (show) process.stdout.write(text);
      });
    }
    child.on("error", (error) => resolve(error.message));
    child.on("close", (code, signal) => resolve(signal ?? code));
  });
  await new Promise((resolve) => log.end(resolve));
  let { passed, failed } = counted(output);
  if (ended !== 0 && failed === 0) failed = 1;
  if (passed + failed === 0) passed = 1;
  return { name, ms: performance.now() - start, passed, failed, ended, output, file };
}

/** A part that could not run because an earlier one failed. */
export const notRun = ({ name }, cause) => ({ name, ms: 0, passed: 0, failed: 1, ended: `not run: ${cause} failed` });

/** One line of how a part ended, and the end of what a failed one printed. */
export function report(result) {
  const { name, ms, passed, failed, ended, output, file } = result;
  const tests = `${passed} passed${failed > 0 ? `, ${failed} failed` : ""}`;
  const state = (failed > 0 ? "FAILED" : "ok").padEnd(8);
  console.log(`${state}${name.padEnd(34)}${duration(ms).padStart(13)}   ${tests}`);
  if (failed === 0) return;
  if (output === undefined) console.log(`        ${ended}`);
  else
    console.log(
      `${output.split("\n").slice(-150).join("\n")}\n        ended with ${ended}; all of it is in ${path.relative(root, file)}`,
    );
}

/** Prints the sum as the last line, in a form that programs can read, and sets the exit status. */
export function close(results, start) {
  const sum = (key) => results.reduce((total, result) => total + result[key], 0);
  const [passed, failed] = [sum("passed"), sum("failed")];
  for (const { name } of results.filter((result) => result.failed > 0)) console.log(`failed: ${name}`);
  console.log(`took ${duration(performance.now() - start)}`);
  console.log(`${passed} passed, ${failed} failed`);
  process.exitCode = failed > 0 ? 1 : 0;
}
