/** Bytes as browsers bring them, where one buffer takes piece after piece. */

import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { open as openInChromium, openInFirefox, openInWebKit } from "../package/browsers.mjs";
import { page, serve } from "../package/support.mjs";
import { folderOf } from "./support/models.ts";
import { serveFiles } from "./support/server.ts";

const FILE = new Uint8Array(randomBytes(30_000_001));
const SHARED = { "access-control-allow-origin": "*", "access-control-expose-headers": "content-range" };
/** How a file may come. Where a connection drops, WebKit loses all that nobody has read: as many cuts as there are tries would fail. */
const WAYS = {
  "by one connection": {},
  "by several": { http: { connections: 3, enough: 1e9 } },
  "again and again": {
    http: { connections: 3, enough: 1e9, backoff: 1 },
    server: { cut: { after: 1_500_001, times: 3 } },
  },
  "from a server without ranges": { server: { noRanges: true } },
};

/** What one file from each address hashes to, copied out of pieces as late as that is allowed. */
const program = (addresses) => `
  import { HttpSource } from "./http.js";

  const hex = (bytes) => [...new Uint8Array(bytes)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  const printed = {};
  for (const [way, url, http] of ${JSON.stringify(addresses)}) {
    try {
      const { source } = await HttpSource.open({ kind: "url", url, headers: [] }, http);
      const bytes = new Uint8Array(source.size - 3);
      let at = 0;
      for await (const piece of source.stream(3, bytes.length)) {
        await new Promise((next) => setTimeout(next));
        bytes.set(piece, at);
        at += piece.length;
      }
      printed[way] = hex(await crypto.subtle.digest("SHA-256", bytes));
    } catch (error) {
      printed[way] = String(error);
    }
  }
  document.querySelector("output").textContent = JSON.stringify(printed);
`;

test("pieces that take each other's place bring the file whole", { timeout: 400_000 }, async (context) => {
  const entry = fileURLToPath(new URL("../../src/source/http.ts", import.meta.url));
  const bundled = await build({ entryPoints: [entry], bundle: true, format: "esm", write: false });
  const expected = createHash("sha256").update(FILE.subarray(3)).digest("hex");
  for (const open of [openInChromium, openInFirefox, openInWebKit]) {
    const addresses = [];
    for (const [way, { http = {}, server = {} }] of Object.entries(WAYS)) {
      const announce = (headers) => ({ ...headers, ...SHARED });
      const { url } = await serveFiles(context, { file: FILE }, { ...server, announce, answer: allowed });
      addresses.push([way, `${url}file`, http]);
    }
    const texts = {
      "index.html": page("./main.js"),
      "main.js": program(addresses),
      "http.js": bundled.outputFiles[0].text,
    };
    const encoded = Object.entries(texts).map(([name, text]) => [name, new TextEncoder().encode(text)]);
    const { url, close } = await serve({ mounts: { "/": await folderOf(context, Object.fromEntries(encoded)) } });
    context.after(close);
    const { printed, seen } = await open(context, url);
    const wanted = Object.fromEntries(Object.keys(WAYS).map((way) => [way, expected]));
    assert.deepEqual(JSON.parse(printed), wanted, seen.join("\n"));
  }
});

/** A page of another origin asks before it asks for a range. */
function allowed({ method }, response) {
  if (method !== "OPTIONS") return false;
  response.writeHead(204, { ...SHARED, "access-control-allow-headers": "range" }).end();
  return true;
}
