/**
 * A worker whose engine is simulated: `worker.mjs '{"queue": …, "folder": …, "ms": 5}'`. Answers are those of `answering` below; a line
 * of `poison` ends the process.
 */
import { writeSync } from "node:fs";
import { work } from "@ternlight/batch";
import { answering } from "./lines.mjs";

const { queue, folder, ms = 2, lease = 2, chunks = 2, poison } = JSON.parse(process.argv[2]);

// A clock that jumps to and fro by hours.
let offset = 0;
const now = Date.now;
Date.now = () => now() + offset;
process.on("SIGUSR2", () => {
  offset = offset === 0 ? 7_200_000 : offset > 0 ? -7_200_000 : 0;
});

const model = answering({ ms, poison });
const worker = await work({
  queue,
  folder,
  model,
  chunks,
  lease,
  onEvent: (event) => writeSync(1, `${JSON.stringify(event)}\n`),
  onError: (error) => writeSync(2, `${error.message.slice(0, 200)}\n`),
});
process.on("SIGTERM", async () => {
  await worker.close();
  process.exit();
});
