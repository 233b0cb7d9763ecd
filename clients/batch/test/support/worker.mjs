/**
 * A worker whose engine is simulated: `worker.mjs '{"queue": …, "folder": …, "ms": 5}'`. Answers are those of `answering` below; a line
 * of `poison` ends the process, and its clock is `clock` milliseconds ahead. With `engine` it has the demo model instead.
 */
import { writeSync } from "node:fs";
import { work } from "@ternlight/batch";
import { openEngine } from "./engine.mjs";
import { answering } from "./lines.mjs";

const {
  queue,
  folder,
  ms = 2,
  lease = 2,
  chunks = 2,
  poison,
  places,
  by,
  ready,
  clock = 0,
  engine = false,
} = JSON.parse(process.argv[2]);

// A clock that jumps to and fro by hours.
let offset = clock;
const now = Date.now;
Date.now = () => now() + offset;
process.on("SIGUSR2", () => {
  offset = offset === 0 ? 7_200_000 : offset > 0 ? -7_200_000 : 0;
});

const model = engine ? await openEngine() : answering({ ms, poison, by, ...(places ? { places } : {}) });
const worker = await work({
  queue,
  folder,
  model,
  chunks,
  lease,
  onEvent: (event) => writeSync(1, `${JSON.stringify(event)}\n`),
  onError: (error) => writeSync(2, `${error.message.slice(0, 200)}\n`),
});
if (ready) writeSync(1, "ready\n");
process.on("SIGTERM", async () => {
  await worker.close();
  process.exit();
});
