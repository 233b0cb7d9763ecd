/** Rendering on a server with React 18 and 19: the page begins with "loading", nothing is loaded there, and the browser takes it up as it is. */
import assert from "node:assert/strict";
import { rm } from "node:fs/promises";
import path from "node:path";
import { Writable } from "node:stream";
import { test } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";
import { build } from "esbuild";
import { load } from "ternlight";
import { sharedLoad } from "ternlight/integration";
import { openPage } from "../../scripts/testing.mjs";

const here = fileURLToPath(new URL("./", import.meta.url));
const packages = fileURLToPath(new URL("../../../pkg/test/clients/node_modules/", import.meta.url));
const reacts = {
  18: { react: path.join(packages, "react"), "react-dom": path.join(packages, "react-dom") },
  19: {},
};

const SERVER = `export { version } from "react";
export { renderToPipeableStream } from "react-dom/server";
export { App } from "./server_app.jsx";`;

/** The program as a server has it. */
async function program(context, major) {
  // Beside the tests, from where the packages are found.
  const outfile = path.join(here, `server-${major}-${process.pid}.mjs`);
  context.after(() => rm(outfile, { force: true }));
  await build({
    stdin: { contents: SERVER, resolveDir: here },
    outfile,
    bundle: true,
    platform: "node",
    format: "esm",
    jsx: "automatic",
    external: ["ternlight", "ternlight/*"],
    alias: reacts[major],
    banner: { js: 'import { createRequire } from "node:module"; const require = createRequire(import.meta.url);' },
    logLevel: "warning",
  });
  return import(pathToFileURL(outfile).href);
}

/** All that a server sends, and the errors that it is told of. */
function rendered({ App, renderToPipeableStream }, props) {
  return new Promise((resolve, reject) => {
    const [chunks, errors] = [[], []];
    const sink = new Writable({
      write(chunk, _, done) {
        chunks.push(chunk);
        done();
      },
    });
    sink.on("finish", () => resolve({ html: Buffer.concat(chunks).toString(), errors }));
    const stream = renderToPipeableStream(App(props), {
      onError: (error) => void errors.push(error.message),
      onShellError: reject,
      onAllReady: () => stream.pipe(sink),
    });
  });
}

for (const major of Object.keys(reacts)) {
  for (const suspense of [false, true]) {
    const name = `React ${major}${suspense ? ", suspended" : ""}`;
    test(`${name}: the server loads nothing, and the page goes on from what it sent`, async (context) => {
      const server = await program(context, major);
      assert.equal(server.version.split(".")[0], major);
      const source = "/model/";
      const { html, errors } = await rendered(server, { source, suspense });
      const words = html.replaceAll(/<!--.*?-->/g, "");
      if (suspense) {
        assert.match(words, /<b>wait<\/b>/);
        assert.equal(errors.length, 1);
        assert.match(errors[0], /in the page alone/);
      } else {
        assert.match(words, /<p>loading null no model <\/p>/);
        assert.deepEqual(errors, []);
      }
      await null;
      assert.equal(sharedLoad(load, source).state.status, "idle");

      const entry = path.join(here, "hydrate.jsx");
      const query = suspense ? "?suspense" : "";
      const { page, problems } = await openPage(context, entry, { alias: reacts[major], query, body: html });
      await page.getByText(/^ready \S+ (?!no model)/).waitFor();
      const found = await page.evaluate(() => ({
        major: globalThis.version.split(".")[0],
        kept: globalThis.first === document.querySelector("h1"),
        recovered: globalThis.recovered,
      }));
      assert.deepEqual([found.major, found.kept], [major, true]);
      // What was suspended on the server is rendered by the page, as it should.
      if (suspense) assert.equal(found.recovered.length, 1);
      else assert.deepEqual(found.recovered, []);
      assert.deepEqual(problems, []);
    });
  }
}
