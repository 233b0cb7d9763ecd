/** Listens with a function of requests, on Node, Deno and Bun. */

import { lstat, unlink } from "node:fs/promises";
import { createServer, type Server, type ServerOptions } from "node:http";
import { createServer as createSecureServer } from "node:https";
import { type AddressInfo, connect, createServer as createDoor, type Server as Door, type Socket } from "node:net";
import type { Writable } from "node:stream";
import { createServer as createSecureDoor } from "node:tls";
import { getRequestListener } from "@hono/node-server";
import { EngineError } from "../types/errors.ts";

export interface Place {
  host: string;
  port: number;
  unix?: string | undefined;
  /** In PEM. */
  tls?: { cert: string; key: string } | undefined;
}

export interface Listener {
  /** `http://127.0.0.1:8000`, `unix:/run/ternlight.sock` */
  url: string;
  /** Lets what is being sent end, and closes every connection. */
  close(): Promise<void>;
}

type Answer = (request: Request) => Promise<Response>;

/** What is known of a request's connection. */
interface Incoming {
  httpVersion: string;
  socket: Writable;
}

/** Connections at once: each answer has one, and some are kept open by their clients. */
const MAX_CONNECTIONS = 1024;
/** What a client that sends nothing gets of a connection, in milliseconds. */
const HEADERS_MS = 10_000;
/** What a request may take to come, in milliseconds. */
const REQUEST_MS = 60_000;
/** What is left of an answer when the server has stopped, in milliseconds. */
const LAST_MS = 1000;
const MAX_HEADER_BYTES = 16_384;

export async function listen(place: Place, answer: Answer): Promise<Listener> {
  try {
    if (place.unix !== undefined) await removeStale(place.unix);
    // Deno and Bun have Node's server, too: their own have no limit of connections.
    return await listenAt(place, answer);
  } catch (cause) {
    const at = place.unix ?? `${place.host}:${place.port}`;
    const message = `the server cannot listen on ${at}: ${(cause as Error).message}`;
    throw new EngineError("InvalidArgument", message, { option: place.unix ? "--unix" : "--port" }, { cause });
  }
}

/** A server that was killed leaves its socket behind, which nobody can listen on while it is there. */
async function removeStale(path: string): Promise<void> {
  const found = await lstat(path).catch(() => null);
  if (!found?.isSocket()) return;
  const refused = await new Promise<boolean>((resolve) => {
    const socket = connect(path, () => resolve(false));
    socket.once("error", ({ code }: NodeJS.ErrnoException) => resolve(code === "ECONNREFUSED"));
    socket.once("connect", () => socket.destroy());
  });
  if (refused) await unlink(path);
}

function urlOf({ host, port, unix, tls }: Place): string {
  if (unix !== undefined) return `unix:${unix}`;
  return `${tls ? "https" : "http"}://${host.includes(":") ? `[${host}]` : host}:${port}`;
}

async function listenAt(place: Place, answer: Answer): Promise<Listener> {
  const listener = getRequestListener(async (request, { incoming }) => atOnce(await answer(request), incoming), {
    overrideGlobalObjects: false,
    // HTTP/1.0 may name none, and probes of load balancers do not.
    hostname: "localhost",
  });
  const limits: ServerOptions = {
    headersTimeout: HEADERS_MS,
    requestTimeout: REQUEST_MS,
    maxHeaderSize: MAX_HEADER_BYTES,
    connectionsCheckingInterval: HEADERS_MS / 4,
  };
  const server = place.tls ? createSecureServer({ ...limits, ...place.tls }, listener) : createServer(limits, listener);
  const { door, closeAll } = "Bun" in globalThis ? inBun(server, place) : inNode(server);
  door.maxConnections = MAX_CONNECTIONS;
  await new Promise<void>((resolve, reject) => {
    door.once("error", reject);
    if (place.unix !== undefined) door.listen(place.unix, resolve);
    else door.listen(place.port, place.host, resolve);
  });
  const address = door.address();
  const { port } = typeof address === "object" && address ? (address as AddressInfo) : place;
  return {
    url: urlOf({ ...place, port }),
    async close() {
      const closed = new Promise((resolve) => door.close(resolve));
      await soon(closed);
      closeAll();
      await closed;
    },
  };
}

/** What listens. */
interface Entrance {
  door: Door;
  /** Ends its connections. */
  closeAll(): void;
}

const inNode = (server: Server): Entrance => ({ door: server, closeAll: () => server.closeAllConnections() });

/**
 * In Bun the server of HTTP knows no limit of connections and no time for headers. That of sockets has the limit and hands each connection
 * on, for as long as its next request may take to come.
 */
function inBun(server: Server, { tls }: Place): Entrance {
  const open = new Map<Socket, ReturnType<typeof setTimeout>>();
  const wait = (socket: Socket) => {
    if (!socket.destroyed)
      open.set(
        socket,
        setTimeout(() => socket.destroy(), HEADERS_MS),
      );
  };
  server.on("request", ({ socket }, response) => {
    clearTimeout(open.get(socket));
    response.once("finish", () => wait(socket));
  });
  const enter = (socket: Socket) => {
    wait(socket);
    socket.once("close", () => {
      clearTimeout(open.get(socket));
      open.delete(socket);
    });
    server.emit("connection", socket);
  };
  const door = tls ? createSecureDoor({ ...tls, handshakeTimeout: HEADERS_MS }, enter) : createDoor(enter);
  const closeAll = () => {
    for (const socket of open.keys()) socket.destroy();
  };
  return { door, closeAll };
}

/**
 * Answers whose length is not known are held back for some milliseconds, in case that they end soon, unless they are chunked by name.
 * HTTP/1.0 has no chunks. The headers of a stream and its first event, which is there, go out together: they are written by
 * promises' callbacks, all of which run before the next tick of the process. An immediate would come after what else waits.
 */
function atOnce(response: Response, { httpVersion, socket }: Incoming): Response {
  const events = response.headers.get("content-type")?.startsWith("text/event-stream") ?? false;
  if (!events || httpVersion === "1.0") return response;
  response.headers.set("transfer-encoding", "chunked");
  socket.cork();
  queueMicrotask(() => process.nextTick(() => socket.uncork()));
  return response;
}

/** Waits for what is being sent, but for nobody who does not read it. */
async function soon(closed: unknown): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise((resolve) => {
    timer = setTimeout(resolve, LAST_MS);
  });
  await Promise.race([closed, late]);
  clearTimeout(timer);
}
