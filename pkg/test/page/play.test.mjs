/** The playgrounds: an answer that follows a schema, and calls of tools whose results the reader writes. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { chatModel, picture, start, visit } from "./support.mjs";

let demo;
let model;
before(async () => {
  [demo, model] = await Promise.all([start(), chatModel()]);
});
after(() => demo?.stop());

async function open(context, mode, files = null) {
  const page = await visit(context, demo.browser, demo.isolated);
  await page.reach("ready");
  if (files) await page.choose(files);
  await page.page.getByLabel(mode, { exact: true }).check();
  return page;
}

test("a schema is followed, also by a model without a template, and a wrong one is said to be", async (context) => {
  for (const files of [null, model]) {
    const page = await open(context, "JSON", files);
    const schema = page.page.getByLabel("JSON schema");
    const asked = {
      type: "object",
      properties: { sons: { type: "integer", minimum: 3, maximum: 9 } },
      required: ["sons"],
      additionalProperties: false,
    };
    await schema.fill(JSON.stringify(asked));
    await page.prompt.fill("The king had");
    await page.set({ "Max tokens": 200, Seed: 4, Temperature: 0 });
    await page.write();
    const value = JSON.parse(await page.output.locator("pre").innerText());
    assert.deepEqual(Object.keys(value), ["sons"]);
    assert.ok(value.sons >= 3 && value.sons <= 9);
    await page.page.getByText("This is JSON that follows the schema.").waitFor();
    await picture(page, "json");

    await page.set({ "Max tokens": 2 });
    await page.write();
    await page.page.getByText(/cut off before its end/).waitFor();
    for (const [text, code] of [
      ["{", "BadSchema"],
      ['{ "type": "nothing" }', "BadConstraint"],
    ]) {
      await schema.fill(text);
      await page.generate.click();
      await page.page
        .locator("#problem pre")
        .filter({ hasText: `${code}: ` })
        .waitFor({ state: "attached" });
      assert.match(await page.problem.innerText(), /The JSON schema cannot be used/);
    }
    assert.deepEqual(page.complaints, []);
  }
});

test("a call is shown, and the model goes on with what the reader says it gave", async (context) => {
  const page = await open(context, "Tools", model);
  const parameters = {
    type: "object",
    properties: { city: { enum: ["Rome", "Paris"] } },
    required: ["city"],
    additionalProperties: false,
  };
  const tools = [{ type: "function", function: { name: "weather", description: "The weather", parameters } }];
  await page.page.getByLabel("Tool definitions").fill(JSON.stringify(tools));
  await page.page.getByLabel("Calls").selectOption("required");
  await page.set({ "Max tokens": 90, Seed: 2 });
  await page.prompt.fill("Is it warm?");
  await page.write();
  const call = page.output.locator(".calls code").first();
  assert.match(await call.innerText(), /^weather\(\{"city":"(Rome|Paris)"\}\)$/);
  await picture(page, "tools");
  const results = await page.page.getByLabel("What weather gives").all();
  for (const field of results) await field.fill("21 degrees");
  // What fails can be sent again.
  const definitions = page.page.getByLabel("Tool definitions");
  const right = await definitions.inputValue();
  await definitions.fill("{}");
  await results[0].press("Control+Enter");
  await page.reach("failed");
  await definitions.fill(right);
  await page.page.getByLabel("Calls").selectOption("none");
  await page.states();
  await page.page.getByRole("button", { name: "Go on with these results" }).click();
  await page.page.waitForFunction(() => globalThis.states.at(-1) === "ready");
  assert.deepEqual(await page.page.getByRole("article").locator("h3").allInnerTexts(), [
    "You",
    "Model",
    ...results.map(() => "Result of weather"),
    "Model",
  ]);
  assert.equal(await page.page.getByRole("button", { name: "Go on with these results" }).count(), 0);
  await page.page.getByRole("button", { name: "Begin again" }).click();
  assert.equal(await page.page.getByRole("article").count(), 0);

  await page.page.getByLabel("Tool definitions").fill("{}");
  await page.prompt.fill("Hello");
  await page.generate.click();
  await page.page.getByText("The tools cannot be used.").waitFor();
  assert.equal(await page.prompt.inputValue(), "Hello");
  await page.prompt.fill(" ");
  await page.generate.click();
  await page.page.getByText("There is nothing to send.").waitFor();
  assert.deepEqual(page.complaints, []);
});
