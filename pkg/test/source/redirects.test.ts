/** The caller's headers stay at the origin that they were given for. */

import assert from "node:assert/strict";
import type { IncomingHttpHeaders } from "node:http";
import { before, type TestContext, test } from "node:test";
import { inspect } from "ternlight";
import { goldenFile } from "./support/models.ts";
import { serveFiles } from "./support/server.ts";

let tiny: Uint8Array<ArrayBuffer>;
before(async () => {
  tiny = await goldenFile("gguf/llama_bitlinear.TQ2_0.gguf");
});

const SECRETS = { authorization: "Bearer secret", "x-api-key": "secret", cookie: "session=secret" };
const secrets = (headers: IncomingHttpHeaders) => Object.keys(SECRETS).filter((name) => headers[name] !== undefined);

/** A server that answers what `/from/…` asks for with a redirect, and what each of its requests brought. */
async function redirecting(context: TestContext, status: number, target: (own: string) => string) {
  const seen: { path: string; secrets: string[]; range: string | undefined }[] = [];
  const server = await serveFiles(
    context,
    { "tiny.gguf": tiny },
    {
      answer(request, response) {
        const { url = "", headers } = request;
        seen.push({ path: url, secrets: secrets(headers), range: headers.range });
        if (!url.startsWith("/from/")) return false;
        response.writeHead(status, { location: target(`http://${headers.host}`) }).end();
        return true;
      },
    },
  );
  return { ...server, seen };
}

test("a redirect to another origin is sent none of the caller's headers", async (context) => {
  const other = await redirecting(context, 302, () => "/");
  for (const status of [301, 302, 303, 307, 308]) {
    const first = await redirecting(context, status, () => `${other.url}tiny.gguf?signed`);
    const withPassword = first.url.replace("//", "//joe:secret@");
    for (const source of [
      new Request(`${first.url}from/tiny.gguf`, { headers: SECRETS }),
      `${withPassword}from/tiny.gguf`,
    ]) {
      first.seen.length = other.seen.length = 0;
      assert.ok((await inspect(source)).config.layers > 0);
      assert.ok(first.seen.length > 0 && first.seen.every((one) => one.secrets.includes("authorization")));
      assert.ok(other.seen.length > 0 && other.seen.every((one) => one.secrets.length === 0 && one.range));
    }
  }
});

test("a redirect within the origin keeps them, and one that comes back from another does not", async (context) => {
  const same = await redirecting(context, 302, (own) => `${own}/tiny.gguf`);
  const request = () => new Request(`${same.url}from/tiny.gguf`, { headers: SECRETS });
  await inspect(request());
  assert.ok(same.seen.every((one) => one.secrets.length === 3));

  let home = "";
  const other = await redirecting(context, 302, () => `${home}tiny.gguf`);
  const first = await redirecting(context, 302, () => `${other.url}from/x`);
  home = first.url;
  await inspect(new Request(`${first.url}from/tiny.gguf`, { headers: SECRETS }));
  assert.ok(other.seen.every((one) => one.secrets.length === 0));
  const last = first.seen.filter(({ path }) => path === "/tiny.gguf");
  assert.ok(last.length > 0 && last.every((one) => one.secrets.length === 0));
});

test("redirects end, and lead to servers alone", async (context) => {
  const circle = await redirecting(context, 302, (own) => `${own}/from/again`);
  const away = await redirecting(context, 302, () => "file:///etc/passwd");
  for (const [{ url }, message] of [
    [circle, /more than 20 redirects/],
    [away, /a redirect leads to file:/],
  ] as const) {
    const source = new Request(`${url}from/tiny.gguf`, { headers: SECRETS });
    await assert.rejects(inspect(source), { name: "EngineError", code: "Network", message });
  }
  assert.ok(circle.seen.length <= 2 * 21);
});
