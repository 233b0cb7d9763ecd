/** A reporter: of test files that died instead of failing a test, how they ended, and what they said last. */

const LAST = 4000;

export default async function* ends(events) {
  const said = new Map();
  const died = [];
  for await (const { type, data } of events) {
    if (type === "test:stderr") said.set(data.file, ((said.get(data.file) ?? "") + data.message).slice(-LAST));
    const { exitCode, signal } = (type === "test:fail" && data.details.error) || {};
    if (exitCode !== undefined) died.push(`${data.name}: exit code ${exitCode}, signal ${signal}\n${said.get(data.file) ?? ""}\n`);
  }
  yield* died;
}
