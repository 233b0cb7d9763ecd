/** A server of files that notes which of their bytes were asked for. */

import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import type { TestContext } from "node:test";

export interface Asked {
  path: string;
  /** First and last byte; null for all of it. */
  range: [number, number] | null;
}

export async function serveNoting(context: TestContext, folder: string): Promise<{ url: string; asked: Asked[] }> {
  const asked: Asked[] = [];
  const server = createServer(async (request, response) => {
    const path = request.url!.slice(1);
    const range = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? "");
    asked.push({ path, range: range && [Number(range[1]), Number(range[2])] });
    const bytes = await readFile(join(folder, path)).catch(() => null);
    if (!bytes) return response.writeHead(404).end();
    if (!range) return response.end(bytes);
    const part = bytes.subarray(Number(range[1]), Number(range[2]) + 1);
    const last = Number(range[1]) + part.length - 1;
    response.writeHead(206, { "content-range": `bytes ${range[1]}-${last}/${bytes.length}` }).end(part);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  context.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`, asked };
}
