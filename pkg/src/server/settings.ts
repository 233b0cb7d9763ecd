/** The options of the app, checked and with their defaults. */

import { isModel } from "../integration/is_model.ts";
import { checkAll, isObject, wrong } from "../options/check.ts";
import { serverApp } from "../options/table/server.ts";
import type { MetricsDialect, Model, ModelSource } from "../types/index.ts";
import type { Batches } from "./batches.ts";
import type { Loader } from "./slot.ts";
import type { Telemetry } from "./trace.ts";

/** What a request was and did. */
export interface RequestRecord {
  id: string;
  method: string;
  path: string;
  status: number;
  /** Milliseconds to the end of the answer. */
  ms: number;
  model?: string;
  promptTokens?: number;
  completionTokens?: number;
  /** The ids of the header `traceparent`, where a request has one. */
  traceId?: string;
  spanId?: string;
  sampled?: boolean;
  /** What went wrong inside of the server. No answer has it. */
  error?: string;
}

export interface ServerOptions {
  /** Models by the names that clients use. A function loads its model, and loads it again where its worker has died. */
  models: Readonly<Record<string, Model | Loader>>;
  /** For each model by its name, the sources of adapters by the names that clients use. @default none */
  adapters?: Readonly<Record<string, Readonly<Record<string, ModelSource>>>> | undefined;
  /** Keys, one of which each request must have, as `Authorization: Bearer` or `x-api-key`. Health checks need none. @default none */
  apiKeys?: readonly string[] | undefined;
  /** Origins whose pages may use the server; `*` allows every page. @default none */
  cors?: readonly string[] | undefined;
  /** Names that the Host header may have, against DNS rebinding. @default all */
  allowedHosts?: readonly string[] | undefined;
  /** The size of a request's body at most. @default 4000000 bytes */
  maxBody?: number | undefined;
  /** Requests under way at most; the next one is refused with status 429. @default 256 requests */
  maxRequests?: number | undefined;
  /** The most tokens of an answer whose request has no limit; -1 is none. @default 128 tokens */
  defaultMaxTokens?: number | undefined;
  /** How often a stream gets a comment. @default 15 seconds */
  pingSeconds?: number | undefined;
  /** Unloads a model that had no request for so long; the next one loads it again. @default never */
  idleUnload?: number | undefined;
  /** Keeps files and batches, and works on these. @default none: /v1/files and /v1/batches answer 404 */
  batches?: Batches | undefined;
  /** Makes a source of the path by which a request asks for an adapter. @default adapters cannot be loaded by requests */
  adapterSource?: ((path: string) => ModelSource) | undefined;
  /** Whose names `/metrics` has; a query `?dialect=` asks for others. @default "ternlight" */
  metricsDialect?: MetricsDialect | undefined;
  /** Called with each measurement of an answer, in OpenTelemetry's names. @default none */
  onTelemetry?: ((measured: Telemetry) => void) | undefined;
  /** Called with a record of each request when it has ended. @default none */
  onRequest?: ((record: RequestRecord) => void) | undefined;
}

const { maxBody, maxRequests, defaultMaxTokens, pingSeconds, metricsDialect } = serverApp;

export function settingsOf(options: ServerOptions) {
  const given = checkAll("createApp", serverApp, options);
  if (isObject(given.models) || Object.keys(given.models).length === 0)
    throw wrong("createApp", "models", "an object of at least one model", given.models);
  for (const [name, model] of Object.entries(given.models))
    if (typeof model !== "function" && !isModel(model))
      throw wrong("createApp", `models.${name}`, "a loaded model or a function that loads one", model);
  const loaded = Object.values(given.models).some((model) => typeof model !== "function");
  if (given.idleUnload !== undefined && loaded)
    throw wrong(
      "createApp",
      "idleUnload",
      "left out, or models be functions, which can load them again",
      given.idleUnload,
    );
  const apiKeys = given.apiKeys?.map((key) => key.trim());
  if (apiKeys?.includes("")) throw wrong("createApp", "apiKeys", "texts that are not empty", "");
  for (const [i, key] of apiKeys?.entries() ?? []) {
    // The message shows one character of the key, as it may come to a log.
    const [unsent] = /[^ -~]/u.exec(key) ?? [];
    if (unsent)
      throw wrong("createApp", `apiKeys[${i}]`, "of printable ASCII characters, which clients can send", unsent);
  }
  return {
    maxBody: maxBody.default,
    maxRequests: maxRequests.default,
    defaultMaxTokens: defaultMaxTokens.default,
    pingSeconds: pingSeconds.default,
    idleUnload: 0,
    metricsDialect: metricsDialect.default as MetricsDialect,
    ...given,
    ...(apiKeys ? { apiKeys } : {}),
  };
}

export type Settings = Readonly<Omit<ServerOptions, "models"> & ReturnType<typeof settingsOf>>;
