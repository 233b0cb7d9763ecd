/** The server over https, on every runtime, with a certificate of the test's own. */

import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { get } from "node:http";
import { request } from "node:https";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { CONTINUATION, parseEvents } from "./support/app.ts";
import { certificate } from "./support/certificate.ts";
import { runtimes, serve } from "./support/command.ts";

const { cert, key } = certificate();
const ask = { model: "ternlight-demo", prompt: "Once upon a time", temperature: 0, max_tokens: 12 };

async function written(
  context: TestContext,
  texts: Readonly<Record<string, string>>,
): Promise<(name: string) => string> {
  const folder = await mkdtemp(join(tmpdir(), "ternlight-"));
  context.after(() => rm(folder, { recursive: true }));
  const at = (name: string) => join(folder, name);
  for (const [name, text] of Object.entries(texts)) await writeFile(at(name), text);
  return at;
}

/** Asks a server whose certificate must be the one that is named. */
const post = (url: string, body: object, ca: string) =>
  new Promise<string>((resolve, reject) => {
    const asking = request(`${url}/v1/completions`, { method: "POST", ca }, async (response) => {
      let text = "";
      for await (const part of response.setEncoding("utf8")) text += part;
      resolve(text);
    });
    asking.on("error", reject).end(JSON.stringify(body));
  });

for (const runtime of Object.keys(runtimes)) {
  test(`${runtime}: answers over https, whole and streamed`, async (context) => {
    const at = await written(context, { "cert.pem": cert, "key.pem": key });
    const server = await serve(context, ["--tls-cert", at("cert.pem"), "--tls-key", at("key.pem")], { runtime });
    assert.match(server.url, /^https:\/\/127\.0\.0\.1:\d+$/);
    assert.equal(JSON.parse(await post(server.url, ask, cert)).choices[0].text, CONTINUATION);
    const all = parseEvents(await post(server.url, { ...ask, stream: true }, cert));
    assert.equal(all.at(-1)!.data, "[DONE]");
    const texts = all.slice(0, -1).map(({ data }) => JSON.parse(data).choices[0].text);
    assert.equal(texts.join(""), CONTINUATION);

    await assert.rejects(post(server.url, ask, certificate().cert), "another certificate is not trusted");
    const plain = new Promise((resolve, reject) => {
      get(server.url.replace("https", "http"), (response) => resolve(response.resume().statusCode)).on("error", reject);
    });
    assert.notEqual(await plain.catch(() => "closed"), 200);
    server.child.kill("SIGTERM");
    assert.equal(await server.ended, 0, server.err());
  });
}

test("what is no certificate, or no key of it, is told by its flag", async (context) => {
  const other = certificate().key;
  const at = await written(context, { "cert.pem": cert, "key.pem": key, "other.pem": other, "text.pem": "text" });
  for (const runtime of Object.keys(runtimes)) {
    for (const [certFile, keyFile] of [
      ["text.pem", "key.pem"],
      ["cert.pem", "text.pem"],
      ["cert.pem", "other.pem"],
    ]) {
      const starting = serve(context, ["--tls-cert", at(certFile!), "--tls-key", at(keyFile!)], { runtime });
      await assert.rejects(
        starting,
        /it ended with 2: .*--tls-(cert|key): .*(cert|text|key|other)\.pem/s,
        `${runtime}: ${certFile} and ${keyFile}`,
      );
    }
  }
  await assert.rejects(
    serve(context, ["--tls-cert", at("none.pem"), "--tls-key", at("key.pem")]),
    /--tls-cert: ENOENT/,
  );
});
