/** Files and batches. */

import { missing, pageOf, readBatch } from "../../openai/batches.ts";
import { ApiError } from "../../openai/errors.ts";
import type { Batches } from "../batches.ts";
import type { Core } from "../core.ts";
import type { App, AppContext } from "../env.ts";
import { stopping } from "../models.ts";

/** The form of ids that are given here; nothing else is looked up. */
const IDS = { file: /^file-[0-9a-f]{32}$/, batch: /^batch_[0-9a-f]{32}$/ } as const;
const PAGES = { files: { limit: 10_000, most: 10_000 }, batches: { limit: 20, most: 100 } } as const;

export function batchRoutes(app: App, core: Core): void {
  const there = (): Batches => {
    const { batches } = core.settings;
    if (batches) return batches;
    throw new ApiError(404, "this server keeps no files and batches: ternlight serve does with --batch-folder DIR", {
      type: "invalid_request_error",
      code: "batches_not_enabled",
    });
  };
  /** Nothing new begins while the server stops. */
  const open = (): Batches => {
    const batches = there();
    if (core.stopping) throw stopping();
    return batches;
  };
  const fileOf = (c: AppContext) => found("file", c, there().files());
  const batchOf = (c: AppContext) => found("batch", c, there().batches());

  app.post("/v1/files", async (c) => {
    const batches = open();
    checkOrigin(c.req.raw);
    return c.json(await batches.upload(c.req.raw));
  });
  app.get("/v1/files", (c) => {
    const { purpose, ...query } = c.req.query();
    const files = there().files();
    return c.json(pageOf(purpose ? files.filter((one) => one.purpose === purpose) : files, query, PAGES.files));
  });
  app.get("/v1/files/:id", (c) => c.json(fileOf(c)));
  app.get("/v1/files/:id/content", async (c) => {
    const { bytes, body } = await there().content(fileOf(c).id);
    const headers = { "content-type": "application/octet-stream", "x-content-type-options": "nosniff" };
    return new Response(body, { headers: { ...headers, "content-length": String(bytes) } });
  });
  app.delete("/v1/files/:id", async (c) => {
    const { id } = fileOf(c);
    await open().remove(id);
    return c.json({ id, object: "file", deleted: true });
  });

  app.post("/v1/batches", async (c) => {
    const batches = open();
    return c.json(await batches.create(readBatch(await core.body(c.req.raw))));
  });
  app.get("/v1/batches", (c) => c.json(pageOf(there().batches(), c.req.query(), PAGES.batches)));
  app.get("/v1/batches/:id", (c) => c.json(batchOf(c)));
  app.post("/v1/batches/:id/cancel", async (c) => c.json(await open().cancel(batchOf(c).id)));
}

function found<T extends { id: string }>(what: "file" | "batch", c: AppContext, all: readonly T[]): T {
  const id = c.req.param("id") ?? "";
  const one = IDS[what].test(id) ? all.find((one) => one.id === id) : undefined;
  if (!one) throw missing(what, id);
  return one;
}

/** A page of another origin may send forms without asking first, but no key with them. */
function checkOrigin({ headers }: Request): void {
  if (!headers.has("origin") || headers.has("authorization") || headers.has("x-api-key")) return;
  throw new ApiError(403, "a page must send a key with a file", { code: "origin_not_allowed" });
}
