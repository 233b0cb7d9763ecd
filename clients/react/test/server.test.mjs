/** Rendering on a server: the page begins with "loading", and nothing is loaded there. */
import assert from "node:assert/strict";
import { Writable } from "node:stream";
import { test } from "node:test";
import { useGeneration, useTernlight } from "@ternlight/react";
import { createElement, Suspense } from "react";
import { renderToPipeableStream, renderToString } from "react-dom/server";
import { load } from "ternlight";
import { sharedLoad } from "ternlight/integration";

const source = "https://example.com/model.gguf";

function Shown({ suspense = false }) {
  const { status, progress, model } = useTernlight(source, { suspense });
  const { text } = useGeneration(model);
  return createElement("p", null, `${status} ${progress} ${model} ${text}`);
}

test("a component renders as loading, and starts nothing", async () => {
  assert.equal(renderToString(createElement(Shown)), "<p>loading null null </p>");
  await null;
  assert.equal(sharedLoad(load, source).state.status, "idle");
});

test("with suspense the page begins with the fallback", async () => {
  const page = createElement(
    Suspense,
    { fallback: createElement("b", null, "wait") },
    createElement(Shown, { suspense: true }),
  );
  const errors = [];
  const html = await new Promise((resolve, reject) => {
    const chunks = [];
    const stream = renderToPipeableStream(page, {
      onError: (error) => void errors.push(error.message),
      onShellError: reject,
      onAllReady() {
        const sink = new Writable({
          write(chunk, _, done) {
            chunks.push(chunk);
            done();
          },
        });
        sink.on("finish", () => resolve(Buffer.concat(chunks).toString()));
        stream.pipe(sink);
      },
    });
  });
  assert.match(html, /<b>wait<\/b>/);
  assert.equal(errors.length, 1);
  assert.match(errors[0], /in the page alone/);
});
