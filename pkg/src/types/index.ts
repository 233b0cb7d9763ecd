/**
 * The public types, by topic. Sizes are in bytes, times in milliseconds, token counts in tokens. An option that is undefined counts as
 * left out, also where `exactOptionalPropertyTypes` distinguishes the two.
 */

export type * from "./adapters.ts";
export type * from "./cache.ts";
export type * from "./chat.ts";
export type * from "./generate.ts";
export type * from "./health.ts";
export type * from "./info.ts";
export type * from "./load.ts";
export type * from "./metrics.ts";
export type * from "./model.ts";
export type * from "./sampling.ts";
export type * from "./score.ts";
export type * from "./session.ts";
export type * from "./sources.ts";
export type * from "./tools.ts";
