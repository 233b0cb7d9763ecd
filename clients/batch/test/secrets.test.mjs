/** Brokers over TLS and with passwords: the URL says so, and no message says the URL. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { certificate } from "../../../pkg/test/server/support/certificate.ts";
import { broker, missing } from "./support/brokers.mjs";
import { expected } from "./support/lines.mjs";

const file = (name) => fileURLToPath(new URL(name, import.meta.url));
const PASSWORD = "s3cret-word";
/** The password, and what base64 and percent signs make of it. */
const SECRET = new RegExp(`${PASSWORD}|${Buffer.from(PASSWORD).toString("base64").slice(0, 12)}`, "i");

async function run(script, args, env) {
  const child = spawn(process.execPath, [file(script), ...args], { env: { ...process.env, ...env } });
  let said = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (text) => (said += text));
  const [code] = await once(child, "close");
  return { code, said };
}

for (const kind of ["redis", "database"]) {
  const why = missing(kind);
  test(`TLS and passwords are in the URL alone (${kind})`, {
    timeout: 120_000,
    skip: why || false,
  }, async (context) => {
    const folder = await mkdtemp(path.join(tmpdir(), "ternlight-tls-"));
    const { cert, key } = certificate();
    const made = await broker(kind, { cert, key, password: PASSWORD });
    context.after(async () => {
      await made.end();
      await rm(folder, { recursive: true, force: true });
    });
    const ca = path.join(folder, "ca.pem");
    await writeFile(ca, cert);
    const env = { NODE_EXTRA_CA_CERTS: ca };
    const place = (url) => ({ queue: url, ...(kind === "redis" ? { folder } : {}) });
    const out = path.join(folder, "out.jsonl");

    const worker = spawn(process.execPath, [file("support/worker.mjs"), JSON.stringify(place(made.url))], {
      env: { ...process.env, ...env },
    });
    let said = "";
    for (const stream of [worker.stdout, worker.stderr]) stream.on("data", (text) => (said += text));
    context.after(() => worker.kill("SIGKILL"));
    const collected = await run(
      "support/collect.mjs",
      [JSON.stringify({ ...place(made.url), out, lines: 60, chunk: 8 })],
      env,
    );
    assert.equal(collected.code, 0, collected.said);
    assert.equal(await readFile(out, "utf8"), expected(60).out);
    // A broker that goes away makes a worker speak, maybe before it is gone altogether.
    const spoke = once(worker.stderr, "data");
    await made.kill();
    await spoke;
    await made.start();

    const wrong = made.url.replace(PASSWORD, `${PASSWORD}x`);
    const plain = made.url.replace("rediss:", "redis:").replace(/\?.*/, "");
    const cli = "../../../pkg/dist/cli.js";
    const flags = kind === "redis" ? ["--folder", folder] : [];
    const failing = [
      [wrong, env],
      [plain, env],
      // Whoever signed the certificate is not known.
      [made.url, {}],
    ];
    for (const [url, more] of failing) {
      const args = ["batch", "status", "--queue", url, ...flags];
      const texts = await Promise.all([[], ["--debug"], ["--json"]].map((flag) => run(cli, [...args, ...flag], more)));
      for (const found of texts) {
        assert.equal(found.code, 1, found.said);
        assert.match(found.said, /127\.0\.0\.1|localhost/);
        said += found.said;
      }
    }
    assert.doesNotMatch(said + collected.said, SECRET);
    assert.notEqual(said, "");
  });
}
