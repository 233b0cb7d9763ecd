/** A hub on loopback that speaks Hugging Face's interface: lists, descriptions, files behind redirects, tokens, gates, and faults. */

import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { TestContext } from "node:test";
import type { Files } from "./split.ts";

export interface Repository {
  /** By revision. */
  revisions: Readonly<Record<string, Files>>;
  /** Everybody may see that it is there, and those with the token read it. */
  gated?: boolean;
  /** Only those with the token see that it is there. */
  secret?: boolean;
}

export interface HubOptions {
  repositories: Readonly<Record<string, Repository>>;
  /** The only token that counts. */
  token?: string;
  /** Entries of a page of a list. */
  pageLength?: number;
  /** Has no lists of files, as some mirrors: only descriptions of repositories. */
  noLists?: boolean;
  /** Answers instead; true when it did. */
  answer?(request: IncomingMessage, response: ServerResponse): boolean;
}

export interface Asked {
  /** Which of the two servers. */
  at: "hub" | "store";
  method: string;
  path: string;
  authorization: string | undefined;
}

/** Starts a hub, and beside it the store at another origin that it redirects to. It is what `HF_ENDPOINT` names until the test ends. */
export async function startHub(context: TestContext, options: HubOptions): Promise<{ url: string; asked: Asked[] }> {
  const asked: Asked[] = [];
  const note = (at: Asked["at"], { method = "", url = "", headers }: IncomingMessage) =>
    asked.push({ at, method, path: url, authorization: headers.authorization });
  const store = await listening(context, (request, response) => {
    note("store", request);
    const { pathname, searchParams } = new URL(request.url!, "http://store");
    // What a signed address allows needs no token.
    if (searchParams.get("signature") !== "yes") return response.writeHead(403).end();
    const [repo = "", revision = "", name = ""] = pathname.slice(1).split("|").map(decodeURIComponent);
    sendFile(request, response, options.repositories[repo]!.revisions[revision]![name]!);
  });
  const hub = await listening(context, (request, response) => {
    note("hub", request);
    if (!options.answer?.(request, response)) answerHub(request, response, options, store);
  });
  const { HF_ENDPOINT: before } = process.env;
  process.env.HF_ENDPOINT = hub;
  context.after(() => {
    if (before === undefined) delete process.env.HF_ENDPOINT;
    else process.env.HF_ENDPOINT = before;
  });
  return { url: hub, asked };
}

const CORS = { "access-control-allow-origin": "*", "access-control-allow-headers": "*" };
const SHOWN = { "access-control-expose-headers": "X-Error-Code,Link,Content-Range,ETag,Location" };

function answerHub(request: IncomingMessage, response: ServerResponse, options: HubOptions, store: string) {
  const { pathname, searchParams } = new URL(request.url!, "http://hub");
  const fail = (status: number, why?: string) =>
    void response.writeHead(status, { ...CORS, ...SHOWN, ...(why && { "x-error-code": why }) }).end(`${status}`);
  if (request.method === "OPTIONS") return response.writeHead(204, CORS).end();
  const api = /^\/api\/models\/([^/]+\/[^/]+)\/(tree|revision)\/([^/]+)(?:\/(.*))?$/.exec(pathname);
  const file = /^\/([^/]+\/[^/]+)\/resolve\/([^/]+)\/(.*)$/.exec(pathname);
  const [, repo = "", , encoded = ""] = api ?? (file && [file[0], file[1]!, "", file[2]!]) ?? [];
  const found = options.repositories[repo];
  const { authorization } = request.headers;
  const known = options.token !== undefined && authorization === `Bearer ${options.token}`;
  if (authorization && !known) return fail(401);
  // Who has no token is not told whether it is misspelt or private.
  if (!found || (found.secret && !known)) return fail(known ? 404 : 401, "RepoNotFound");
  const revision = decodeURIComponent(encoded);
  const files = found.revisions[revision];
  if (!files) return fail(404, "RevisionNotFound");
  if (api?.[2] === "revision") return sendJson(response, describe(repo, files));
  if (api) return options.noLists ? fail(404) : list(response, files, api[4] ?? "", pathname, searchParams, options);
  const name = decodeURIComponent(file![3]!);
  if (found.gated && !known) return fail(authorization ? 403 : 401, "GatedRepo");
  if (!files[name]) return fail(404, "EntryNotFound");
  if (/\.json$/.test(name)) return sendFile(request, response, files[name]!);
  const location = `${store}/${[repo, revision, name].map(encodeURIComponent).join("|")}?signature=yes`;
  response.writeHead(302, { ...CORS, ...SHOWN, location }).end();
}

const describe = (repo: string, files: Files) => ({
  id: repo,
  siblings: Object.keys(files).map((rfilename) => ({ rfilename })),
});

function list(
  response: ServerResponse,
  files: Files,
  folder: string,
  pathname: string,
  query: URLSearchParams,
  { pageLength = 1000 }: HubOptions,
): void {
  const inside = Object.keys(files).filter((name) => name.startsWith(decodeURIComponent(folder)));
  const folders = [...new Set(inside.filter((name) => name.includes("/")).map((name) => name.replace(/\/[^/]*$/, "")))];
  const entries = [
    ...folders.map((path) => ({ type: "directory", path, oid: "0", size: 0 })),
    ...inside.map((path) => ({ type: "file", path, oid: "0", size: files[path]!.length })),
  ];
  const from = Number(query.get("cursor") ?? 0);
  const next = from + pageLength;
  const link = `<${process.env.HF_ENDPOINT}${pathname}?recursive=true&cursor=${next}>; rel="next"`;
  sendJson(response, entries.slice(from, next), next < entries.length ? { link } : {});
}

function sendJson(response: ServerResponse, body: unknown, headers: Record<string, string> = {}): void {
  response.writeHead(200, { ...CORS, ...SHOWN, "content-type": "application/json", ...headers });
  response.end(JSON.stringify(body));
}

function sendFile(request: IncomingMessage, response: ServerResponse, file: Uint8Array) {
  const [, from, to] = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? "") ?? [];
  const headers = { ...CORS, ...SHOWN, etag: `"${file.length}"`, "accept-ranges": "bytes" };
  if (from === undefined || request.method === "HEAD") {
    response.writeHead(200, { ...headers, "content-length": file.length });
    return response.end(request.method === "HEAD" ? undefined : file);
  }
  const part = file.subarray(Number(from), to ? Number(to) + 1 : file.length);
  const range = `bytes ${from}-${Number(from) + part.length - 1}/${file.length}`;
  response.writeHead(206, { ...headers, "content-length": part.length, "content-range": range }).end(part);
}

async function listening(context: TestContext, answer: (request: IncomingMessage, response: ServerResponse) => void) {
  const server: Server = createServer(answer);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  context.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}
