/** `useChat` of `ai` 6 and 7 in a page, without a server behind it. */
import assert from "node:assert/strict";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { CONTINUATION, HERMES, openPage, PLAIN } from "../../scripts/testing.mjs";

const entry = fileURLToPath(new URL("./use_chat.jsx", import.meta.url));

const packages = fileURLToPath(new URL("../../../node_modules/", import.meta.url));
const hook = path.join(packages, "ai6-react");
const versions = { "ai 6": { ai: path.join(hook, "node_modules", "ai"), "@ai-sdk/react": hook }, "ai 7": {} };

async function chat(context, alias, given) {
  const query = `?${new URLSearchParams({ template: PLAIN, ...given })}`;
  const opened = await openPage(context, entry, { alias, query });
  await opened.page.waitForFunction(() => globalThis.chat);
  const state = () =>
    opened.page.evaluate(() => {
      const { messages, status, error, phases } = globalThis.chat;
      return { messages, status, error, phases };
    });
  const settled = async () => {
    await opened.page.waitForFunction(() => ["ready", "error"].includes(globalThis.chat.status));
    return state();
  };
  const send = async (text) => {
    const before = (await state()).messages.length;
    await opened.page.evaluate((text) => void globalThis.chat.sendMessage({ text }), text);
    const begun = ([before, error]) => globalThis.chat.messages.length > before + 1 || globalThis.chat.status === error;
    await opened.page.waitForFunction(begun, [before, "error"]);
  };
  return { ...opened, state, settled, send };
}

const textOf = ({ parts }) => parts.map((part) => part.text ?? "").join("");

for (const [version, alias] of Object.entries(versions)) {
  test(`${version}: a conversation, its regeneration and the progress of its load`, async (context) => {
    const { page, settled, send, problems } = await chat(context, alias);
    await send("Once upon a time");
    const first = await settled();
    assert.equal(first.error, undefined);
    assert.deepEqual(
      first.messages.map((message) => [message.role, textOf(message)]),
      [
        ["user", "Once upon a time"],
        ["assistant", CONTINUATION],
      ],
    );
    assert.equal(first.phases[0], "header");
    assert.equal(first.phases.at(-1), "ready");
    assert.ok(first.messages.every(({ parts }) => parts.every(({ type }) => !type.startsWith("data-"))));

    await page.evaluate(() => void globalThis.chat.regenerate());
    const another = (id) => globalThis.chat.messages[1] && globalThis.chat.messages[1].id !== id;
    await page.waitForFunction(another, first.messages[1].id);
    const again = await settled();
    assert.deepEqual(again.messages.map(textOf), first.messages.map(textOf));

    await send(" Then");
    const second = await settled();
    assert.equal(second.messages.length, 4);
    assert.deepEqual(problems, []);
  });

  test(`${version}: an answer is stopped and stays as it is`, async (context) => {
    const { page, settled, state, send } = await chat(context, alias, { tokens: 4000 });
    await send("Once upon a time");
    await page.waitForFunction(
      () => globalThis.chat.messages.at(-1)?.role === "assistant" && document.body.innerText.length > 60,
    );
    await page.evaluate(() => globalThis.chat.stop());
    const { messages, error } = await settled();
    assert.equal(error, undefined);
    assert.ok(textOf(messages[1]).startsWith(CONTINUATION.slice(0, 10)));
    await page.waitForTimeout(300);
    assert.deepEqual((await state()).messages, messages);
  });

  test(`${version}: tools run in the page, and the next answer knows of it`, async (context) => {
    const { page, settled, send } = await chat(context, alias, { template: HERMES, tools: 1, tokens: 200 });
    await send("Is it raining?");
    // Between the first answer and the next one, which has the output, the chat is ready for a moment.
    const calls = () => globalThis.chat.messages[1].parts.filter(({ type }) => type === "tool-weather").length;
    await page.waitForFunction(`(${calls})() === 2 || globalThis.chat.status === "error"`);
    const { messages, error } = await settled();
    assert.equal(error, undefined);
    const found = messages[1].parts.filter(({ type }) => type === "tool-weather");
    assert.equal(found.length, 2);
    assert.equal(found[0].state, "output-available");
    assert.equal(found[0].output.city, found[0].input.city);
  });

  test(`${version}: what goes wrong is told in the engine's words`, async (context) => {
    const { settled, send } = await chat(context, alias, { template: "{% nonsense %}" });
    await send("Hello");
    const { error, status } = await settled();
    assert.equal(status, "error");
    assert.match(error, /template/i);
  });
}
