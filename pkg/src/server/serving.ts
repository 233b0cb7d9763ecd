/** What the command line takes from this room. */

export { begin } from "./answers.ts";
export { createApp, type ServerApp } from "./app.ts";
export type { Batches, LineServer } from "./batches.ts";
export { type Answered, type Line, LineAnswers } from "./lines.ts";
export type { RequestRecord } from "./settings.ts";
export { fingerprintOf, type Loader } from "./slot.ts";
