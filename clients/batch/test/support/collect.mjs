/**
 * Submits and collects: `collect.mjs '{"queue": …, "folder": …, "out": …, "lines": 100, "chunk": 16}'`; for the demo model with its
 * `engine`, the identity.
 */
import { collect, submit } from "@ternlight/batch";
import { engineRows } from "./engine.mjs";
import { IDENTITY, rows } from "./lines.mjs";

const { queue, folder, out, lines, chunk, window, engine = null } = JSON.parse(process.argv[2]);
const read = engine === null ? rows : engineRows;
for (;;) {
  try {
    const job = await submit({ queue, folder, rows: read(lines), identity: engine ?? IDENTITY, model: "m", chunk });
    await collect({ queue, folder, job: job.id, out, ...(window ? { window } : {}) });
    process.exit();
  } catch (error) {
    // As somebody would who calls it again: a broker or a disk that is away comes back.
    if (!["Network", "Unwritable"].includes(error.code)) console.error(error);
    await new Promise((resolve) => setTimeout(resolve, 300));
  }
}
