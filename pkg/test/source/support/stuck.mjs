/** The demo model on another origin's server, as models lie, which may get stuck. */

import { createHash } from "node:crypto";
import { readdir, readFile } from "node:fs/promises";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { serveFiles } from "./server.ts";

export const MIB = 1 << 20;
/** Of the cache. */
const CHUNK = 512 << 10;
export const WEIGHTS = "model.safetensors";

const demo = fileURLToPath(new URL("../../../models/ternlight-demo/", import.meta.url));
const names = (await readdir(demo)).filter((name) => /\.(json|safetensors)$/.test(name));
const contents = names.map(async (name) => [name, new Uint8Array(await readFile(path.join(demo, name)))]);
export const files = Object.fromEntries(await Promise.all(contents));

const tag = (name) => `"${createHash("sha256").update(files[name]).digest("hex").slice(0, 8)}"`;

/** `stuck` sends no more than two megabytes of the weights. */
export async function modelServer(context) {
  const state = { stuck: false };
  const announce = (headers, name) => ({
    ...headers,
    ...(files[name] && { etag: tag(name) }),
    "access-control-allow-origin": "*",
    "access-control-expose-headers": "etag, content-range",
    "cross-origin-resource-policy": "cross-origin",
  });
  const { url, asked } = await serveFiles(context, files, {
    announce,
    answer(request, response) {
      const from = Number(/=(\d+)-/.exec(request.headers.range ?? "")?.[1] ?? 0);
      if (!state.stuck || from < CHUNK || request.method !== "GET") return false;
      const { length } = files[WEIGHTS];
      response.writeHead(206, announce({ "content-range": `bytes ${from}-${length - 1}/${length}` }, WEIGHTS));
      response.write(files[WEIGHTS].subarray(from, 2 * MIB + 1000));
      return true;
    },
  });
  return { url, asked, state };
}
