/** The server as a function from requests to responses. What listens, reads certificates and logs is the command line's. */

import { Hono, type MiddlewareHandler } from "hono";
import { ApiError, toApiError } from "../openai/errors.ts";
import type { ModelInfo } from "../types/index.ts";
import { hosts, keys, origins } from "./access.ts";
import type { LineServer } from "./batches.ts";
import { Core, type Entry } from "./core.ts";
import type { App, AppContext, Env } from "./env.ts";
import { messageError } from "./messages_reply.ts";
import { Models } from "./models.ts";
import { batchRoutes } from "./routes/batches.ts";
import { completionRoutes } from "./routes/completions.ts";
import { documentRoute } from "./routes/document.ts";
import { embeddingRoutes } from "./routes/embeddings.ts";
import { healthRoutes } from "./routes/health.ts";
import { messageRoutes } from "./routes/messages.ts";
import { metricRoutes } from "./routes/metrics.ts";
import { modelRoutes } from "./routes/models.ts";
import { responseRoutes } from "./routes/responses.ts";
import { textRoutes } from "./routes/text.ts";
import { type RequestRecord, type ServerOptions, settingsOf } from "./settings.ts";
import { Slot } from "./slot.ts";
import { readTraceParent } from "./trace.ts";

/** A server without a socket. */
export interface ServerApp {
  /** Answers a request; fits `Deno.serve`, `Bun.serve`, service workers and edge workers. */
  fetch(request: Request): Promise<Response>;
  /** Settles when all models are loaded, or with the error of one that cannot be. */
  readonly ready: Promise<void>;
  /** The models, with what is known of those that are loaded. */
  models(): Promise<{ name: string; info: ModelInfo | null }[]>;
  /** Requests under way. */
  readonly active: number;
  /** Refuses new work, and ends what runs when the time is up. */
  drain(ms: number): Promise<void>;
  /** Ends what runs and closes the models. */
  close(): Promise<void>;
}

export function createApp(options: ServerOptions, version = ""): ServerApp {
  const settings = settingsOf(options);
  const more = { idleSeconds: settings.idleUnload };
  const slots = Object.entries(options.models).map(
    ([name, model]) => new Slot(name, model, more, settings.adapters?.[name]),
  );
  const core = new Core(new Models(slots), settings);
  const app: App = new Hono<Env>({ getPath: pathOf });
  const known = (path: string) => app.routes.find((route) => route.method !== "ALL" && leads(route.path, path))?.path;
  app.use(
    records((record, request) => {
      if (core.isLine(request)) return;
      core.counts.note(record, known(record.path) ?? "other");
      settings.onRequest?.(record);
    }),
  );
  /** What is asked of clients alone. */
  const use = (handler: MiddlewareHandler<Env>) =>
    app.use(async (c, next) => (core.isLine(c.req.raw) ? next() : handler(c, next)));
  if (settings.allowedHosts) use(hosts(settings.allowedHosts));
  if (settings.cors?.length) use(origins(settings.cors));
  if (settings.apiKeys?.length) use(keys(settings.apiKeys));
  healthRoutes(app, core, version);
  metricRoutes(app, core, version);
  modelRoutes(app, core);
  completionRoutes(app, core);
  embeddingRoutes(app, core);
  textRoutes(app, core);
  messageRoutes(app, core);
  responseRoutes(app, core);
  batchRoutes(app, core);
  documentRoute(app, core, version);
  app.notFound((c) => answerTo(c, unknown(app, c.req)));
  app.onError((error, c) => answerTo(c, error));
  const ready = Promise.all(slots.map(({ loaded }) => loaded)).then(() => {});
  // Without anybody who waits, the failure of a load is told by each request.
  ready.catch(() => {});
  settings.batches?.start(lineServer(app, core, version));
  return {
    fetch: async (request) => app.fetch(request),
    ready,
    models: () =>
      Promise.all(slots.map(async (slot) => ({ name: slot.name, info: (await slot.current())?.model.info ?? null }))),
    get active() {
      return core.active;
    },
    async drain(ms) {
      await Promise.all([settings.batches?.stop(), core.drain(ms)]);
    },
    async close() {
      await settings.batches?.stop();
      await core.drain(0);
      await Promise.all(slots.map((slot) => slot.close()));
    },
  };
}

function lineServer(app: App, core: Core, version: string): LineServer {
  const { models, settings } = core;
  return {
    async fetch(request) {
      core.markLine(request);
      return app.fetch(request);
    },
    quiet: (signal) => core.quiet(signal),
    knows: (name) => models.list().some(({ id }) => id === name),
    async use(name, work) {
      const { slot } = models.find(name);
      await slot.loaded.catch(() => {});
      const { model, release } = await slot.use();
      try {
        return await work(model);
      } finally {
        release();
      }
    },
    defaultMaxTokens: settings.defaultMaxTokens,
    version,
  };
}

/** The path with slashes single, as clients join addresses carelessly, and with /v1 before what clients also ask for without it. */
function pathOf(request: Request): string {
  const { pathname } = new URL(request.url);
  const path = pathname.replace(/\/{2,}/g, "/").replace(/(?<=.)\/$/, "");
  return /^\/(models|completions|chat\/completions|embeddings)(\/|$)/.test(path) ? `/v1${path}` : path;
}

/** Gives each request a number, and records what became of it. */
const records =
  (onRequest: (record: RequestRecord, request: Request) => void) =>
  async (c: AppContext, next: () => Promise<void>): Promise<void> => {
    const begun = performance.now();
    const id = `req_${crypto.randomUUID().replaceAll("-", "")}`;
    const trace = readTraceParent(c.req.header("traceparent"));
    const { method, path } = c.req;
    const record: RequestRecord = { id, method, path, status: 0, ms: 0, ...(trace ?? {}) };
    const entry: Entry = { record, done: null };
    c.set("entry", entry);
    await next();
    // The second name is Anthropic's. `c.header` would make another response for each.
    for (const name of ["x-request-id", "request-id"]) c.res.headers.set(name, id);
    record.status = c.res.status;
    const end = () => {
      record.ms = performance.now() - begun;
      onRequest(record, c.req.raw);
    };
    if (entry.done) void entry.done.then(end);
    else end();
  };

function answerTo(c: AppContext, error: unknown): Response {
  const found = toApiError(error, null);
  const { record } = c.get("entry");
  const inside = error instanceof ApiError ? error.cause : error;
  if (found.status >= 500 && inside !== undefined) record.error ??= (inside as Error).stack ?? String(inside);
  const body = c.req.path.startsWith("/v1/messages") ? messageError(found) : found.body();
  return Response.json(body, { status: found.status, headers: found.headers });
}

const leads = (route: string, path: string) =>
  route === path || (route.includes(":") && path.startsWith(route.split(":")[0]!));

/** A path that is there for other methods is a 405. */
function unknown(app: App, { method, path }: { method: string; path: string }): ApiError {
  const there = app.routes.filter((route) => route.method !== "ALL" && leads(route.path, path));
  const methods = there.map((route) => route.method);
  const shown = `${method} ${path.slice(0, 200)}`;
  if (methods.length === 0) return new ApiError(404, `there is no ${shown}`, { code: "not_found" });
  const headers = { allow: [...new Set(methods)].join(", ") };
  return new ApiError(405, `there is no ${shown}`, { code: "method_not_allowed", headers });
}
