/** What one load's credentials have fetched is not given to a load with others. */

import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { cache, load } from "ternlight";
import { folderOf, goldenFile } from "./support/models.ts";
import { serveFiles } from "./support/server.ts";

type State = "open" | "guarded" | 429 | 503 | "away";

/** A server that knows two tokens, or none where it is open. */
async function place(context: TestContext) {
  const state = { now: "guarded" as State };
  const tiny = await goldenFile("gguf/llama_bitlinear.TQ2_0.gguf");
  const server = await serveFiles(
    context,
    { "tiny.gguf": tiny },
    {
      announce: (headers) => ({ ...headers, etag: '"1"' }),
      answer(request, response) {
        const { now } = state;
        if (now === "open") return false;
        if (now === "guarded" && /^Bearer [ab]$/.test(request.headers.authorization ?? "")) return false;
        if (now === "away") request.socket.destroy();
        else response.writeHead(now === "guarded" ? 401 : now, { "retry-after": "0" }).end();
        return true;
      },
    },
  );
  const directory = await folderOf(context, {});
  const get = async (token?: string, init: RequestInit = {}) => {
    const source = new Request(`${server.url}tiny.gguf`, init);
    if (token) source.headers.set("authorization", `Bearer ${token}`);
    const model = await load(source, { threads: 1, cache: directory });
    const { warnings } = model.info;
    await model.close();
    return warnings.join();
  };
  return { ...server, state, directory, get };
}

test("a private file is given to no other credential while the server does not answer", async (context) => {
  const { state, get, asked, directory } = await place(context);
  assert.equal(await get("a"), "");
  for (const now of [429, 503, "away"] as const) {
    state.now = now;
    await assert.rejects(get("b"), { code: "Network" }, `${now}, another token`);
    await assert.rejects(get(), { code: "Network" }, `${now}, no token`);
    assert.match(await get("a"), /is the one that was kept/, `${now}, the same token`);
  }
  // What the server allows costs no second download.
  state.now = "guarded";
  asked.length = 0;
  assert.equal(await get("b"), "");
  assert.ok(asked.every(({ sent }) => sent === 0));
  await assert.rejects(get("c"), { code: "Network", message: /401/ });
  assert.equal((await cache.list({ directory })).length, 1);
});

test("a public file is given to all, and one that came by cookies to none", async (context) => {
  const { state, get, directory } = await place(context);
  state.now = "open";
  await get();
  state.now = "away";
  assert.match(await get("a"), /is the one that was kept/);
  assert.match(await get(), /is the one that was kept/);

  await cache.delete(undefined, { directory });
  state.now = "open";
  await get(undefined, { credentials: "include" });
  state.now = "away";
  await assert.rejects(get(undefined, { credentials: "include" }), { code: "Network" });
  await assert.rejects(get(), { code: "Network" });
});
