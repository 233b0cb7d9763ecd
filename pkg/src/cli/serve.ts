import { hostname } from "node:os";
import { openBatchFolder } from "../batch/service.ts";
import { invalid } from "../openai/errors.ts";
import { serveFlags } from "../options/table/server.ts";
import { type Batches, createApp, type RequestRecord, type ServerApp } from "../server/serving.ts";
import type { Args } from "./args.ts";
import { plural } from "./format.ts";
import { listen, type Place } from "./listen.ts";
import { loadOptions } from "./model.ts";
import { adaptersOf, keysOf, modelsOf, tlsOf } from "./served.ts";
import { UsageError } from "./syntax.ts";
import type { Terminal } from "./terminal.ts";
import { watched } from "./thresholds.ts";
import type { Command } from "./usage.ts";
import { version } from "./version.ts";

/** The exit status of a program that SIGTERM ended. */
const TERMINATED = 143;
const LOOPBACK = ["localhost"];

export const serve: Command = {
  name: "serve",
  async run(args, terminal) {
    const place = await placeOf(args);
    const { app, open } = await appOf(args, place, terminal);
    const { shutdownTimeout = serveFlags.shutdownTimeout.default } = args.own<{ shutdownTimeout?: number }>(
      "serveFlags",
    );
    let stop = () => {};
    const stopped = new Promise<void>((resolve) => {
      stop = resolve;
    });
    let stopping = false;
    // A terminal that closes hangs up.
    for (const signal of ["SIGTERM", "SIGHUP"] as const) {
      process.on(signal, () => {
        if (stopping) process.exit(TERMINATED);
        stopping = true;
        stop();
      });
    }
    const listener = await listen(place, app.fetch);
    try {
      if (open) await terminal.warn([`anybody who reaches ${listener.url} may use it: --api-key asks for a key`]);
      const work = async () => {
        await Promise.race([app.ready, stopped]);
        await Promise.race([announce(app, listener.url, terminal), stopped]);
        await stopped;
        await app.drain(1000 * shutdownTimeout);
      };
      await terminal.interruptible(work, () => stop());
    } finally {
      await listener.close();
      await app.close();
    }
  },
};

/** Where to listen. */
async function placeOf(args: Args): Promise<Place> {
  const flags = args.own<{ host?: string; port?: number; unix?: string; tlsCert?: string; tlsKey?: string }>(
    "serveFlags",
  );
  const { host = serveFlags.host.default, port = serveFlags.port.default, unix, tlsCert, tlsKey } = flags;
  if ((tlsCert === undefined) !== (tlsKey === undefined)) throw new UsageError("--tls-cert and --tls-key go together");
  if (unix !== undefined && (args.has("port") || args.has("host")))
    throw new UsageError("give either --unix or --host and --port");
  const tls = tlsCert === undefined ? undefined : await tlsOf(tlsCert, tlsKey!);
  return { host, port, unix, tls };
}

const isLoopback = ({ host, unix }: Place) =>
  unix !== undefined || host === "localhost" || host === "::1" || /^127(\.\d{1,3}){3}$/.test(host);

async function appOf(args: Args, place: Place, terminal: Terminal): Promise<{ app: ServerApp; open: boolean }> {
  const own = args.own<{ allowedHosts?: string[]; apiKeys?: string[] }>("serverApp");
  const models = await modelsOf(args, await watched(args, loadOptions(args, ["serving", "loading"])));
  const adapters = adaptersOf(args);
  const apiKeys = await keysOf(args);
  const { host, unix } = place;
  const names = [...LOOPBACK, host, hostname(), ...(own.allowedHosts ?? [])];
  // A page cannot reach a socket of the file system. A container that listens on every address may be published on loopback alone: without
  // a key, names are checked there, too.
  const checked = unix === undefined && (isLoopback(place) || apiKeys.length === 0 || own.allowedHosts);
  const trusted = isLoopback(place) || apiKeys.length > 0;
  const batches = await batchesOf(args, terminal);
  const { log = serveFlags.log.default } = args.own<{ log?: string }>("serveFlags");
  const { allowedHosts: _, ...settings } = own;
  const app = createApp(
    {
      ...settings,
      ...(batches ? { batches } : {}),
      models,
      adapters: { [Object.keys(models)[0]!]: adapters },
      ...(apiKeys.length > 0 ? { apiKeys } : {}),
      ...(checked ? { allowedHosts: names } : {}),
      ...(trusted ? { adapterSource: localPath } : {}),
      ...(log === "none"
        ? {}
        : {
            onRequest: (record) =>
              void terminal.note(
                log === "json" ? JSON.stringify({ time: new Date().toISOString(), ...record }) : line(record),
              ),
          }),
    },
    version(),
  );
  return { app, open: !trusted };
}

async function batchesOf(args: Args, terminal: Terminal): Promise<Batches | null> {
  const flags = args.own<{ batchFolder?: string; maxUpload?: number }>("serveFlags");
  const { batchFolder, maxUpload = serveFlags.maxUpload.default } = flags;
  if (batchFolder !== undefined)
    return openBatchFolder(batchFolder, { maxUpload, onProblem: (message) => void terminal.note(message) });
  if (args.has("maxUpload")) throw new UsageError("--max-upload needs --batch-folder", { option: "--max-upload" });
  return null;
}

/** A request may name a file, but no address that the server would have to ask. */
function localPath(path: string): string {
  if (/^[a-z][a-z0-9+.-]*:\/\//i.test(path))
    throw invalid("lora_path", "lora_path must be a path on the server's machine");
  return path;
}

async function announce(app: ServerApp, url: string, terminal: Terminal): Promise<void> {
  const models = await app.models();
  if (terminal.json) return terminal.printJson({ url, models: models.map(({ name }) => name) });
  const each = models.map(({ name, info }) =>
    info ? `${name} (${info.flavour}, ${plural(info.threads, "thread")})` : name,
  );
  await terminal.print(`ternlight ${version()} answers at ${url} with ${each.join(", ")}\n`);
}

/** A request as a line for people. */
function line({
  method,
  path,
  status,
  ms,
  model,
  promptTokens,
  completionTokens,
  error,
  traceId,
}: RequestRecord): string {
  const tokens = promptTokens === undefined ? [] : [`${promptTokens}+${completionTokens ?? 0} tokens`];
  const trace = traceId === undefined ? [] : [`trace ${traceId}`];
  const facts = [
    `${method} ${path}`,
    String(status),
    `${ms.toFixed(1)} ms`,
    ...(model ? [model] : []),
    ...tokens,
    ...trace,
  ];
  return [...facts, ...(error ? [error.split("\n")[0]!] : [])].join("  ");
}
