/**
 * Runs test files, of the patterns given. One that died by a signal runs once more, and how it ended and what it said last is told:
 * Node is known to crash now and then where one worker ends while another starts (nodejs/node#56312).
 */
import path from "node:path";
import { run } from "node:test";
import { spec } from "node:test/reporters";

/** Characters of what a file said last. */
const LAST = 4000;

/** Answers with what failed, and with the files that died. */
async function tested(which) {
  const said = new Map();
  const [failed, died] = [[], []];
  const events = run({ ...which, concurrency: true });
  events.on("test:stderr", ({ file, message }) => said.set(file, ((said.get(file) ?? "") + message).slice(-LAST)));
  events.on("test:fail", ({ name, file, details: { error } }) => {
    const { exitCode, signal } = error;
    if (signal) died.push(path.resolve(file));
    else failed.push(name);
    if (exitCode !== undefined)
      ends.push(`${name} ended with code ${exitCode}, signal ${signal}:\n${said.get(file) ?? ""}`);
  });
  events.on("test:summary", ({ file, counts }) => {
    if (!file && counts.tests === 0) failed.push("no test was found");
  });
  for await (const text of events.compose(spec)) process.stdout.write(text);
  return { failed, died };
}

const ends = [];
const { failed, died } = await tested({ globPatterns: process.argv.slice(2) });
if (died.length > 0) {
  console.log(`\nonce more, as they died:\n${died.join("\n")}\n`);
  const again = await tested({ files: died });
  failed.push(...again.failed, ...again.died);
}
for (const end of ends) console.log(`\n${end}`);
process.exitCode = failed.length > 0 ? 1 : 0;
