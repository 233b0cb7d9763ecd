/** What the command line takes from this room. */

export { begin } from "./answers.ts";
export { createApp, type ServerApp } from "./app.ts";
export type { RequestRecord } from "./settings.ts";
export type { Loader } from "./slot.ts";
