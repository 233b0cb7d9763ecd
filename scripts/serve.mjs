/**
 * A static file server for the demo page and the tests, on loopback only. By hand:
 *
 *     node scripts/serve.mjs [PORT [PACKAGE]]      PACKAGE is pkg, or what `make profile` has built
 *
 * Any other static server will do: `www` at some place and `pkg` at `ternlight/` beneath it. Without the headers below
 * the page runs on one thread, and says so.
 */
import { createReadStream } from "node:fs";
import { stat } from "node:fs/promises";
import { createServer } from "node:http";
import path from "node:path";
import { pipeline } from "node:stream";
import { fileURLToPath } from "node:url";

/** What a page needs so that its memory may be shared with workers. */
export const isolation = {
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-embedder-policy": "require-corp",
  "cross-origin-resource-policy": "same-origin",
};

/**
 * What the page may load; it says so itself too, but its workers follow the headers that they come with. The addresses
 * that connect-src opens are the ones that a user enters.
 */
export const policy = {
  "content-security-policy":
    "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; connect-src 'self' https: http:; base-uri 'none'; form-action 'none'",
};

const types = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".mjs": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".json": "application/json; charset=utf-8",
  ".svg": "image/svg+xml",
  ".webmanifest": "application/manifest+json; charset=utf-8",
  ".png": "image/png",
  ".ico": "image/x-icon",
  ".wasm": "application/wasm",
};

const statuses = { ENOENT: 404, ENOTDIR: 404, ENAMETOOLONG: 404, ERR_INVALID_URL: 400 };

/**
 * Serves folders by URL prefix: `{ "/": "www", "/ternlight/": "pkg" }`; the longest that fits is taken.
 * Answers with the port, which is 0's pick, the one asked for, or with `orNext` the first free one from there on.
 * Paths that were asked for gather in the list `asked`, where one is given; `missed` is called with those that are absent, and what
 * `before` returns for a path is waited for before its answer.
 */
export async function serve({ mounts, port = 0, orNext = false, headers = isolation, asked, missed, before }) {
  const prefixes = Object.keys(mounts).sort((a, b) => b.length - a.length);
  const server = createServer((request, response) => {
    answer(request, response).catch((error) => {
      if (response.headersSent) return response.destroy();
      const status = statuses[error.code] ?? (error instanceof URIError ? 400 : 500);
      if (status === 404) missed?.(request.url);
      response.writeHead(status, headers).end(`${status}\n`);
    });
  });

  async function answer(request, response) {
    if (request.method !== "GET" && request.method !== "HEAD") return response.writeHead(405, headers).end();
    // The URL parser has resolved every `..`, escaped ones too; what is decoded after that must not bring new ones.
    const { pathname } = new URL(request.url, "http://loopback");
    asked?.push(pathname);
    await before?.(pathname);
    const wanted = decodeURIComponent(pathname.endsWith("/") ? `${pathname}index.html` : pathname);
    const prefix = prefixes.find((prefix) => wanted.startsWith(prefix));
    if (prefix === undefined || wanted.split(/[/\\]/).includes("..") || wanted.includes("\0")) {
      return response.writeHead(404, headers).end("404\n");
    }
    const file = path.join(mounts[prefix], wanted.slice(prefix.length));
    const info = await stat(file);
    if (!info.isFile()) return response.writeHead(404, headers).end("404\n");

    const fields = {
      ...headers,
      "content-type": types[path.extname(file)] ?? "application/octet-stream",
      "accept-ranges": "bytes",
      "cache-control": "no-cache",
      etag: `"${info.size.toString(36)}-${info.mtimeMs.toString(36)}"`,
    };
    if (request.headers["if-none-match"] === fields.etag) return response.writeHead(304, fields).end();

    const range = byteRange(request.headers.range, info.size);
    if (range === null) return response.writeHead(416, { ...fields, "content-range": `bytes */${info.size}` }).end();
    const { start, end } = range ?? { start: 0, end: info.size - 1 };
    fields["content-length"] = end - start + 1;
    if (range) fields["content-range"] = `bytes ${start}-${end}/${info.size}`;
    response.writeHead(range ? 206 : 200, fields);
    if (request.method === "HEAD" || info.size === 0) return response.end();
    pipeline(createReadStream(file, { start, end }), response, () => {});
  }

  const bound = await listen(server, port, orNext);
  return { port: bound, url: `http://localhost:${bound}/`, close: () => closed(server) };
}

/** One range, as browsers ask for it: undefined if none was asked for, null if it lies outside. */
function byteRange(header, size) {
  const asked = /^bytes=(\d*)-(\d*)$/.exec(header ?? "");
  if (!asked || (asked[1] === "" && asked[2] === "")) return undefined;
  const [first, last] = [asked[1], asked[2]].map((text) => (text === "" ? undefined : Number(text)));
  const start = first ?? Math.max(0, size - last);
  const end = first === undefined ? size - 1 : Math.min(last ?? size - 1, size - 1);
  return start < size && start <= end ? { start, end } : null;
}

function listen(server, port, orNext) {
  return new Promise((resolve, reject) => {
    server.once("error", (error) => {
      if (error.code !== "EADDRINUSE" || !orNext) return reject(error);
      resolve(listen(server, port + 1, orNext));
    });
    server.listen(port, "127.0.0.1", () => {
      server.removeAllListeners("error");
      resolve(server.address().port);
    });
  });
}

function closed(server) {
  server.closeAllConnections();
  return new Promise((resolve) => server.close(resolve));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const root = fileURLToPath(new URL("../", import.meta.url));
  const mounts = {
    "/": path.join(root, "www"),
    "/ternlight/": path.resolve(process.argv[3] || path.join(root, "pkg")),
  };
  const port = Number(process.argv[2] || 8080);
  const { url } = await serve({ mounts, port, orNext: true, headers: { ...isolation, ...policy } });
  console.log(`ternlight demo: ${url}`);
}
