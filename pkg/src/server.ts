export { createApp, type ServerApp } from "./server/app.ts";
export type { Batch, BatchAsk, Batches, FileObject, LineServer } from "./server/batches.ts";
export type { Answered, Line } from "./server/lines.ts";
export type { RequestRecord, ServerOptions } from "./server/settings.ts";
export type { Loader } from "./server/slot.ts";
export type { Telemetry, TraceParent } from "./server/trace.ts";
