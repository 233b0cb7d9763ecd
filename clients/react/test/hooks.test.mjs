/** The hooks in a page, with React 18 and 19, in strict mode and without. */
import assert from "node:assert/strict";
import { createServer } from "node:http";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { CONTINUATION, openPage } from "../../scripts/testing.mjs";

const entry = fileURLToPath(new URL("./app.jsx", import.meta.url));
const packages = fileURLToPath(new URL("../../../pkg/test/clients/node_modules/", import.meta.url));
const reacts = {
  "React 18": { react: path.join(packages, "react"), "react-dom": path.join(packages, "react-dom") },
  "React 19": {},
};

async function open(context, alias, query = "") {
  const { page, problems, url } = await openPage(context, entry, { alias, query });
  await page.waitForFunction(() => globalThis.show);
  const show = (...shown) => page.evaluate((shown) => globalThis.show(shown), shown);
  const reach = (name, status) =>
    page.waitForFunction(([name, status]) => globalThis.seen[name]?.status === status, [name, status]);
  /** The engines that run in the page. */
  const workers = () => page.workers().filter((worker) => /worker\.js/.test(worker.url())).length;
  const workersAre = async (count) => {
    for (let i = 0; i < 100 && workers() !== count; i++) await page.waitForTimeout(50);
    assert.equal(workers(), count);
  };
  return { page, problems, url, show, reach, workers, workersAre };
}

/** A server that sends the beginning of a file and then waits, until it is told to go on or its client is gone. */
async function slowServer(context) {
  let gone;
  const state = { asked: 0, gone: new Promise((resolve) => (gone = resolve)) };
  const server = createServer((request, response) => {
    const cors = {
      "access-control-allow-origin": "*",
      "access-control-allow-headers": "*",
      "cross-origin-resource-policy": "cross-origin",
    };
    if (request.method === "OPTIONS") return response.writeHead(204, cors).end();
    state.asked++;
    response.on("close", gone);
    response.writeHead(200, { ...cors, "content-length": 1_000_000, "content-type": "application/octet-stream" });
    response.write("GGUF");
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  context.after(() => {
    server.closeAllConnections();
    server.close();
  });
  state.url = `http://localhost:${server.address().port}/model.gguf`;
  return state;
}

for (const [name, alias] of Object.entries(reacts)) {
  test(`${name} is what runs`, async (context) => {
    const { page } = await open(context, alias);
    assert.equal(await page.evaluate(() => `React ${globalThis.version.split(".")[0]}`), name);
  });

  for (const query of ["", "?strict"]) {
    const label = query ? `${name}, strict` : name;

    test(`${label}: one load for any number of components, closed with the last`, async (context) => {
      const { page, problems, show, reach, workersAre } = await open(context, alias, query);
      const [one, two] = ["one", "two"].map((name) => ({ name, source: "/model/" }));
      await show(one, two);
      await reach("one", "ready");
      await reach("two", "ready");
      assert.ok(await page.evaluate(() => globalThis.seen.one.model === globalThis.seen.two.model));
      await workersAre(1);
      await show(one);
      await page.waitForTimeout(200);
      await workersAre(1);
      const alive = () => page.evaluate(() => globalThis.seen.one.model.countTokens("Once upon a time"));
      assert.equal(await alive(), 4);
      await show();
      await workersAre(0);
      await assert.rejects(alive(), /closed/);
      await show(two);
      await page.waitForFunction(
        () => globalThis.seen.two.model !== globalThis.seen.one.model && globalThis.seen.two.status === "ready",
      );
      await workersAre(1);
      assert.deepEqual(problems, []);
    });

    test(`${label}: a component that is gone aborts its load`, async (context) => {
      const slow = await slowServer(context);
      const { show, reach, workersAre } = await open(context, alias, query);
      await show({ name: "one", source: slow.url });
      await reach("one", "loading");
      for (let i = 0; slow.asked === 0; i++) {
        assert.ok(i < 200, "nothing is asked for");
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
      await workersAre(1);
      await show();
      await workersAre(0);
      await slow.gone;
    });
  }

  test(`${name}: an error is told, and retried`, async (context) => {
    const { page, show, reach } = await open(context, alias);
    let absent = true;
    await page.route("**/late/**", (route) =>
      absent
        ? route.fulfill({ status: 404 })
        : route.continue({ url: route.request().url().replace("/late/", "/model/") }),
    );
    await show({ name: "one", source: "/late/" });
    await reach("one", "error");
    assert.equal(await page.evaluate(() => globalThis.seen.one.error.code), "NotFound");
    assert.equal(await page.evaluate(() => globalThis.seen.one.model), null);
    absent = false;
    await page.evaluate(() => globalThis.seen.one.retry());
    await reach("one", "ready");
    assert.equal(await page.evaluate(() => globalThis.seen.one.error), null);
  });

  test(`${name}: Suspense waits, an error boundary catches`, async (context) => {
    const { page, show, reach, workersAre } = await open(context, alias, "?strict");
    const one = { name: "one", source: "/model/", suspense: true };
    await show(one);
    await page.getByText("one: waiting").waitFor();
    await page
      .getByText("one: llama")
      .or(page.getByText(/^one: (?!waiting)/))
      .waitFor();
    await reach("one", "ready");
    await workersAre(1);
    let absent = true;
    await page.route("**/late/**", (route) =>
      absent
        ? route.fulfill({ status: 404 })
        : route.continue({ url: route.request().url().replace("/late/", "/model/") }),
    );
    await show(one, { name: "two", source: "/late/", suspense: true });
    await page.getByText("failed: NotFound").waitFor();
    absent = false;
    await page.evaluate(() => globalThis.again());
    await reach("two", "ready");
  });

  test(`${name}: useGeneration`, async (context) => {
    const { page, problems, show, reach } = await open(context, alias, "?strict");
    await show({ name: "one", source: "/model/" });
    await reach("one", "ready");
    const generate = (options) =>
      page.evaluate((options) => globalThis.seen.one.generation.generate("Once upon a time", options), options);
    const state = () =>
      page.evaluate(() => {
        const { text, status, finished, error } = globalThis.seen.one.generation;
        return { text, status, reason: finished?.finishReason, error: error?.code };
      });
    assert.deepEqual(await state(), { text: "", status: "idle", reason: undefined, error: undefined });
    const { text } = await generate({ maxTokens: 12, temperature: 0 });
    assert.equal(text, CONTINUATION);
    assert.deepEqual(await state(), { text, status: "done", reason: "length", error: undefined });
    await generate({ maxTokens: 0.5 });
    assert.deepEqual(await state(), { text: "", status: "error", reason: undefined, error: "InvalidArgument" });

    await page.evaluate(() => void globalThis.seen.one.generation.generate("Once upon a time", { maxTokens: 200 }));
    await page.waitForFunction(() => globalThis.seen.one.generation.text.length > 20);
    assert.equal((await state()).status, "running");
    // Another one takes its place.
    const replaced = await generate({ maxTokens: 12, temperature: 0 });
    assert.equal(replaced.text, CONTINUATION);
    assert.equal((await state()).text, CONTINUATION);

    await page.evaluate(() => void globalThis.seen.one.generation.generate("Once upon a time", { maxTokens: 200 }));
    await page.waitForFunction(() => globalThis.seen.one.generation.text.length > 20);
    await page.evaluate(() => globalThis.seen.one.generation.stop());
    await page.waitForFunction(() => globalThis.seen.one.generation.status === "done");
    assert.equal((await state()).reason, "stopped");
    assert.deepEqual(problems, []);
  });

  test(`${name}: useChatSession`, async (context) => {
    const { page, problems, show, reach } = await open(context, alias, "?strict");
    await show({ name: "one", source: "/model/" });
    await reach("one", "ready");
    const send = (text, options) =>
      page.evaluate(([text, options]) => globalThis.seen.one.chat.send(text, options), [text, options]);
    const state = () =>
      page.evaluate(() => {
        const { messages, status, error } = globalThis.seen.one.chat;
        return {
          roles: messages.map(({ role }) => role).join(),
          last: messages.at(-1).content,
          status,
          error: error?.code,
        };
      });
    assert.deepEqual(await state(), { roles: "system", last: "Be brief. ", status: "idle", error: undefined });
    const first = await send("Once upon a time");
    assert.deepEqual(await state(), {
      roles: "system,user,assistant",
      last: first.text,
      status: "idle",
      error: undefined,
    });
    // What the session holds is not computed again.
    const second = await send(" Then the king");
    assert.ok(
      second.timings.cachedN + (second.timings.recomputedN ?? 0) >= first.tokens.length + first.promptTokens.length,
    );
    const again = await page.evaluate(() => globalThis.seen.one.chat.regenerate());
    assert.equal(again.text, second.text);
    assert.equal((await state()).roles, "system,user,assistant,user,assistant");

    await send("Now", { maxTokens: 0.5 });
    const failed = await state();
    assert.deepEqual([failed.status, failed.error], ["error", "InvalidArgument"]);
    assert.equal(failed.roles, "system,user,assistant,user,assistant,user");
    await page.evaluate(() => globalThis.seen.one.chat.regenerate());
    assert.equal((await state()).roles, "system,user,assistant,user,assistant,user,assistant");

    await page.evaluate(() => void globalThis.seen.one.chat.send("More", { maxTokens: 200 }));
    await page.waitForFunction(
      () =>
        globalThis.seen.one.chat.status === "running" && globalThis.seen.one.chat.messages.at(-1).content.length > 20,
    );
    // Who speaks meanwhile stops the answer, which stays.
    const after = await send("Enough");
    assert.equal(after.finishReason, "length");
    assert.equal((await state()).roles.split(",").slice(-4).join(), "user,assistant,user,assistant");

    // So it is with who speaks, or stops, before an answer has begun.
    const [reasons, messages] = await page.evaluate(async () => {
      const { chat } = globalThis.seen.one;
      const long = { maxTokens: 10_000, ignoreEos: true };
      chat.reset();
      const ended = await Promise.all([chat.send("One", long), chat.send("Two", long), chat.send("Three")]);
      const last = chat.send("Four", long);
      chat.stop();
      ended.push(await last);
      await new Promise((resolve) => setTimeout(resolve));
      const { messages, status } = globalThis.seen.one.chat;
      return [[...ended.map(({ finishReason }) => finishReason), status], messages];
    });
    assert.deepEqual(reasons, ["stopped", "stopped", "length", "stopped", "idle"]);
    assert.deepEqual(
      messages.map(({ role, content }) => (role === "assistant" ? role : content)),
      ["Be brief. ", "One", "assistant", "Two", "assistant", "Three", "assistant", "Four", "assistant"],
    );

    await page.evaluate(() => void globalThis.seen.one.chat.send("More", { maxTokens: 200 }));
    await page.waitForFunction(() => globalThis.seen.one.chat.status === "running");
    await page.evaluate(() => globalThis.seen.one.chat.reset());
    await page.waitForTimeout(300);
    assert.deepEqual(await state(), { roles: "system", last: "Be brief. ", status: "idle", error: undefined });
    assert.equal((await send("Once upon a time")).text, first.text);
    const busy = await page.evaluate(() => globalThis.seen.one.model.status());
    assert.equal(busy.running, 0);
    assert.deepEqual(problems, []);
  });
}
