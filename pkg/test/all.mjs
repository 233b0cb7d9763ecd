/**
 * Runs test files, of the patterns given. A file whose process ended in another way than its tests did is told with
 * how it ended and what it printed last.
 */
import { availableParallelism } from "node:os";
import { run } from "node:test";
import { spec } from "node:test/reporters";

/** What a load sets in Node (keepWasmCode in src/platform/node.ts), for the tests that instantiate modules themselves. */
const execArgv = ["--no-wasm-code-gc"];

/** No file takes a quarter of it: a test that hangs fails, and the others go on; a file that stays open behind its tests ends the run. */
const MAX_MS = 600_000;

/** Characters of what a file printed last. */
const LAST = 4000;

const printed = new Map();
const [failed, ends] = [[], []];
const over = new AbortController();
// `true` would leave one core out: half of two. Most files wait for a process, a browser or a server much of the time.
const events = run({
  globPatterns: process.argv.slice(2),
  concurrency: availableParallelism(),
  execArgv,
  signal: over.signal,
  timeout: MAX_MS,
});
const silence = setTimeout(() => {
  console.log(`\nNothing was heard for ${MAX_MS / 1000} s, what runs is ended: a file may not end behind its tests.`);
  over.abort();
}, MAX_MS);
events.on("data", () => silence.refresh());
const keep = (file, text) => printed.set(file, ((printed.get(file) ?? "") + text).slice(-LAST));
events.on("test:stderr", ({ file, message }) => keep(file, message));
// An error after a file's last test is told so, and fails the file.
events.on("test:diagnostic", ({ file, message }) => message.startsWith("Error: ") && keep(file, `${message}\n`));
events.on("test:fail", ({ name, file, details: { error } }) => {
  failed.push(name);
  const { exitCode, signal } = error;
  if (exitCode !== undefined)
    ends.push(`${name} ended with code ${exitCode}, signal ${signal}:\n${printed.get(file) ?? ""}`);
});
events.on("test:summary", ({ file, counts }) => {
  if (!file && counts.tests === 0) failed.push("no test was found");
});
for await (const text of events.compose(spec)) process.stdout.write(text);
for (const end of ends) console.log(`\n${end}`);
clearTimeout(silence);
process.exitCode = failed.length > 0 ? 1 : 0;
