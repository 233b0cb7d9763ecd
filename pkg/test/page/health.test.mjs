/** The health page, with a model in the tab and with a real server, and how it reads the text of metrics. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { after, before, test } from "node:test";
import { countOf, Exposition, quantile, since } from "../../../www/exposition.js";
import { serve } from "../server/support/command.ts";
import { file, start, tiny, visit } from "./support.mjs";

let demo;
before(async () => {
  demo = await start();
});
after(() => demo?.stop());

const SIGNALS = 8;
const open = (context, query = "", options = {}) =>
  visit(context, demo.browser, `${demo.isolated}health.html${query}`, options);
const overall = (page) => page.locator("#overall").innerText();
const signal = (page, title) =>
  page.locator("#signals li", { has: page.getByRole("heading", { name: title, exact: true }) });
const ofHealth = (page, state) => page.waitForSelector(`:root[data-health="${state}"]`, { timeout: 30_000 });

test("samples, labels and histograms are read, and percentiles lie within their bucket", () => {
  const text = [
    "# HELP a An a.",
    'a{model="x",why="a \\"b\\" \\\\ c\\nd"} 3',
    'a{model="y"} 4 1700000000000',
    "special NaN",
    ...["0.1", "1", "+Inf"].map((le, i) => `t_seconds_bucket{model="x",le="${le}"} ${[10, 30, 40][i]}`),
    't_seconds_sum{model="x"} 25',
  ].join("\n");
  const read = new Exposition(text);
  assert.equal(read.all("a", { model: "x" })[0].labels.why, 'a "b" \\ c\nd');
  assert.deepEqual(read.valuesOf("a", "model"), ["x", "y"]);
  assert.deepEqual([read.value("a"), read.value("a", { model: "y" }), read.value("b")], [7, 4, null]);
  assert.ok(Number.isNaN(read.value("special")));
  const histogram = read.histogram("t_seconds", { model: "x" });
  assert.deepEqual(histogram, { bounds: [0.1, 1, Number.POSITIVE_INFINITY], counts: [10, 20, 10], sum: 25 });
  assert.equal(read.histogram("t_seconds", { model: "y" }), null);
  assert.deepEqual(quantile(histogram, 0.25), { value: 0.1, over: false });
  assert.deepEqual(quantile(histogram, 0.5), { value: 0.1 + 0.9 / 2, over: false });
  assert.deepEqual(quantile(histogram, 0.9), { value: 1, over: true });
  assert.equal(quantile({ ...histogram, counts: [0, 0, 0] }, 0.5), null);
  const later = { ...histogram, counts: [10, 25, 10], sum: 27 };
  assert.deepEqual(since(later, histogram).counts, [0, 5, 0]);
  assert.equal(countOf(since(later, histogram)), 5);
  assert.deepEqual(since(histogram, later), histogram, "counts that have begun anew");
});

test("a model in the tab: its load, its times, and an alarm", async (context) => {
  const visited = await open(context, "?model=demo");
  const { page, requests, complaints } = visited;
  await visited.reach("watching");
  await ofHealth(page, "ok");
  assert.equal(await page.locator("#signals li").count(), SIGNALS);
  // The first measurement may be over by now.
  assert.match(await signal(page, "Perplexity").locator(".value").innerText(), /^(not measured yet|\d+\.\d+)$/);
  assert.match(await signal(page, "Changed weights").innerText(), /✓ ok\n+0 %\n+warn from 0\.03 %, alert from 0\.2 %/);

  await page.getByLabel("Answers at once").fill("3");
  await page.getByRole("button", { name: "Write", exact: true }).click();
  await page.waitForFunction(() =>
    /\d ms|\d s/.test(document.querySelector("#times tbody").rows[3].cells[4].textContent),
  );
  await page.waitForFunction(() => /^[\d,]{2,}$/.test(document.querySelector("#gauges .value").textContent));
  const rate = page.getByRole("img", { name: /^Tokens a second: now [\d,]+, at most [\d,]+ in the last 1 min$/ });
  await rate.waitFor();
  const drawn = (svg) => svg.querySelector(".line").getAttribute("d").includes("L");
  await page.waitForFunction(drawn, await rate.elementHandle());
  const cells = await page.locator("#times tbody tr").first().locator("td").allInnerTexts();
  const [count, ...times] = cells.map((cell) => Number(cell.replace(",", "").replace(/^over | m?s$/g, "")));
  assert.ok(count >= 3 && times.every((time) => time > 0), cells.join());
  await page.getByRole("button", { name: "Stop writing" }).click();
  const running = page.locator("#gauges figure", { hasText: "Requests" }).locator(".value");
  await page.waitForFunction(() =>
    /^0 running, 0 waiting$/.test(document.querySelectorAll("#gauges .value")[1].textContent),
  );
  assert.equal(await running.innerText(), "0 running, 0 waiting");

  await page.getByRole("button", { name: "Change 5 codes" }).click();
  await ofHealth(page, "alert");
  assert.equal(await overall(page), "✕ alert");
  assert.match(await page.title(), /^alert · /);
  // What was written may have repeated itself, which is an alarm of its own.
  await page.waitForFunction(() => /Changed weights: alert/.test(document.querySelector("#said").textContent));
  assert.match(await signal(page, "Changed weights").innerText(), /✕ alert/);
  // The state is in the colour too, and the alarm's differs from that of what is well.
  const colour = (title) =>
    signal(page, title)
      .locator(".badge")
      .evaluate((badge) => getComputedStyle(badge).backgroundColor);
  assert.notEqual(await colour("Changed weights"), await colour("NaNs and infinities"));

  // Another model has its own history.
  await page.getByLabel("Model files").setInputFiles(tiny);
  await ofHealth(page, "ok");
  assert.match(await page.locator("#facts").innerText(), /TQ2_0\.gguf/);
  await page.getByRole("button", { name: "Stop watching" }).click();
  await visited.reach("idle");
  assert.equal(await overall(page), "? unknown");
  assert.equal(await page.locator("#said").innerText(), "What was read last is shown.");
  assert.ok(await page.getByRole("button", { name: "Compare all weights" }).isHidden());
  assert.deepEqual(complaints, []);
  assert.deepEqual(
    requests.filter((url) => !url.startsWith(demo.isolated)),
    [],
  );
});

test("a file that is no model takes the place of what was watched", async (context) => {
  const visited = await open(context, "?model=demo");
  const { page } = visited;
  await ofHealth(page, "ok");
  await page.getByRole("button", { name: "Change 5 codes" }).click();
  await ofHealth(page, "alert");
  await page.getByLabel("Model files").setInputFiles(file("holiday.png", Buffer.from("89504e470d0a1a0a", "hex")));
  await visited.reach("failed");
  assert.match(await page.getByRole("alert").innerText(), /not a model file/);
  assert.match(await page.title(), /^unknown · /);
  for (const part of ["#watched", "#known", "#work"]) assert.ok(await page.locator(part).isHidden(), part);
  assert.deepEqual(visited.complaints, []);
});

// Within the time in which the engine itself gives up a silent server.
test("a load is stopped", { timeout: 25_000 }, async (context) => {
  const visited = await open(context);
  const { page } = visited;
  // It has not answered yet.
  const slow = createServer();
  await new Promise((listening) => slow.listen(0, "127.0.0.1", listening));
  context.after(() => slow.close());
  await page.getByRole("radio", { name: "A model in this tab" }).check();
  await page.getByLabel("Address").fill(`http://127.0.0.1:${slow.address().port}/model.gguf`);
  const asked = once(slow, "request");
  await page.getByRole("button", { name: "Load", exact: true }).click();
  const [, answer] = await asked;
  const gone = once(answer, "close");
  await page.getByRole("button", { name: "Stop watching" }).click();
  await visited.reach("idle");
  await gone;
  assert.equal(await page.getByRole("status").innerText(), "Nothing is watched.");
});

test("a server with a key: refused, read, stopped", async (context) => {
  const { origin } = new URL(demo.isolated);
  const server = await serve(context, ["--cors", origin, "--api-key", "secret", "--health", "--log", "none"]);
  const visited = await open(context);
  const { page, requests } = visited;
  const watch = () => page.getByRole("button", { name: "Watch", exact: true }).click();
  await page.getByLabel("Server", { exact: true }).fill("server");
  await watch();
  await visited.reach("failed");
  assert.match(await page.getByRole("alert").innerText(), /"server" is no http or https address/);
  // Clients are given this address.
  await page.getByLabel("Server", { exact: true }).fill(`${server.url}/v1`);
  await watch();
  await page.getByText("wants a key").waitFor();
  await page.getByLabel("Key").fill("secret");
  await watch();
  await visited.reach("watching");
  await ofHealth(page, "ok");

  const headers = { "content-type": "application/json", authorization: "Bearer secret" };
  const body = JSON.stringify({ model: "ternlight-demo", prompt: "Once", max_tokens: 50, ignore_eos: true });
  const answer = await fetch(`${server.url}/v1/completions`, { method: "POST", headers, body });
  assert.equal((await answer.json()).usage.completion_tokens, 50);
  await page.waitForFunction(() => document.querySelector("#facts").textContent.includes("Tokens written50"));
  assert.match(await page.locator("#facts").innerText(), /ternlight-demo/);
  assert.ok(await page.getByRole("button", { name: "Write", exact: true }).isHidden());
  await page.waitForFunction(() => document.querySelector("#times tbody").rows[1].cells[1].textContent === "49");

  server.child.kill("SIGKILL");
  await visited.reach("unreachable");
  assert.equal(await overall(page), "? unknown");
  assert.match(await page.getByRole("status").innerText(), /^No answer for .* does not answer/);
  const elsewhere = requests.filter((url) => !url.startsWith(demo.isolated) && !url.startsWith(server.url));
  assert.deepEqual(elsewhere, []);
});

test("a server that does not let pages ask, and one that is another program, are told apart", async (context) => {
  const closed = await serve(context, ["--log", "none"]);
  const visited = await open(context, `?server=${encodeURIComponent(closed.url)}`);
  await visited.reach("failed");
  assert.match(await visited.page.getByRole("alert").innerText(), /ternlight serve --cors http:\/\/localhost:\d+/);
  await visited.page.getByLabel("Server", { exact: true }).fill(demo.isolated);
  await visited.page.getByRole("button", { name: "Watch", exact: true }).click();
  await visited.page.getByText("has no metrics under ternlight’s names").waitFor();
});

test("it is used by the keyboard alone, and fits a narrow screen", async (context) => {
  const visited = await open(context, "", { width: 320, height: 640 });
  const { page } = visited;
  await page.getByRole("radio", { name: "A server" }).focus();
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "Built-in model");
  await page.keyboard.press("Enter");
  await visited.reach("watching");
  await ofHealth(page, "ok");
  const width = await page.evaluate(() => document.documentElement.scrollWidth);
  assert.ok(width <= 320, `${width} pixels`);
  const named = await page
    .locator("button:visible, input:visible, svg:visible")
    .evaluateAll((all) => all.filter((one) => !(one.textContent || one.labels?.length || one.ariaLabel)).length);
  assert.equal(named, 0);
});
