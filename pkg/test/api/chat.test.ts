/** Chats: what a session remembers, what is left out of a long one, and the shapes that messages may have. */

import assert from "node:assert/strict";
import { test } from "node:test";
import type { ChatMessage, Model, Session } from "ternlight";
import { jsonSchema } from "ternlight";
import { demo, failure } from "./support/model.ts";

/** The demo model has no template of its own. */
const chatTemplate =
  "{% for message in messages %}<{{ message.role }}>{{ message.content }}</{{ message.role }}>\n{% endfor %}" +
  "{% if add_generation_prompt %}<assistant>{% endif %}";
const SHORT = { temperature: 0, maxTokens: 8 } as const;
const user = (content: string): ChatMessage => ({ role: "user", content });
const assistant = (content: string): ChatMessage => ({ role: "assistant", content });
const system: ChatMessage = { role: "system", content: "You tell fairy tales." };

/** All ids that the model was given and has answered, as an answer to the whole conversation would have them. */
async function asOne(model: Model, messages: ChatMessage[], session: Session, options: object = SHORT) {
  const { promptTokens, tokens, text } = await model.chat(messages, options).finished;
  assert.deepEqual(session.tokens, [...promptTokens, ...tokens]);
  return text;
}

test("new messages are appended to a session's chat, with its answers", async (context) => {
  const model = await demo(context, { chatTemplate });
  const session = model.session();
  assert.deepEqual(session.messages, []);
  const first = await session.chat([system, user("Tell me of a king.")], SHORT).finished;
  assert.deepEqual(session.messages, [system, user("Tell me of a king."), assistant(first.text)]);
  const second = await session.chat([user("And of his sons.")], SHORT).finished;
  const all = [system, user("Tell me of a king."), assistant(first.text), user("And of his sons.")];
  assert.equal(await asOne(model, all, session), second.text);
  assert.ok(second.timings.cachedN >= first.promptTokens.length, "what the session held was not computed again");
  // The same words once more are a new message, too.
  await session.chat([user("Tell me of a king.")], SHORT).finished;
  assert.equal(session.messages?.length, 7);
  assert.deepEqual(session.messages?.slice(0, 4), all);
});

test("a whole conversation that continues the session's is recognised", async (context) => {
  const model = await demo(context, { chatTemplate });
  const session = model.session();
  const { text } = await session.chat([user("A king.")], SHORT).finished;
  // Blanks around an answer are often cut off before it is kept.
  const whole = [user("A king."), assistant(` ${text}\n`), user("His sons.")];
  await session.chat(whole, SHORT).finished;
  assert.deepEqual(session.messages?.slice(0, 3), whole);
  await asOne(model, whole, session);
});

test("one that contradicts is refused, naming the first message that differs, and nothing is lost", async (context) => {
  const model = await demo(context, { chatTemplate });
  const session = model.session();
  const { text } = await session.chat([system, user("A king.")], SHORT).finished;
  const [held, messages] = [session.tokens, session.messages];
  const cases: [number, ChatMessage[]][] = [
    [0, [{ ...system, content: "You are terse." }, user("A king."), assistant(text), user("b")]],
    [1, [system, user("A queen."), assistant(text), user("b")]],
    [2, [system, user("A king."), assistant("no"), user("b")]],
    [2, [system, user("A king.")]],
    [0, [assistant(text), user("b")]],
  ];
  for (const [at, given] of cases) {
    const { code, detail, message } = await failure(() => session.chat(given, SHORT).finished);
    assert.deepEqual([code, detail.option, detail.message], ["InvalidArgument", "messages", at], message);
    assert.match(message, new RegExp(`messages\\[${at}\\] contradicts the session: expected .*, found `));
  }
  assert.deepEqual([session.tokens, session.messages], [held, messages]);
  const { detail } = await failure(() => session.chat([system, user("A queen.")], SHORT).finished);
  assert.deepEqual([detail.expected, detail.found], ['user "A king."', 'user "A queen."']);
});

test("messages that end with the session's own answer ask for nothing, and are refused", async (context) => {
  const model = await demo(context, { chatTemplate });
  const session = model.session();
  const { text, tokens } = await session.chat([user("A king.")], SHORT).finished;
  const restored = await model.restoreSession(await session.save());
  for (const one of [session, restored]) {
    const [held, messages] = [one.tokens, one.messages!];
    const { code, detail, message } = await failure(() => one.chat(messages, SHORT).finished);
    assert.deepEqual([code, detail.option], ["InvalidArgument", "messages"]);
    assert.match(message, /^chat: no message behind the session's answer: give one, or rewind\(\) first$/);
    assert.deepEqual([one.tokens, one.messages], [held, messages]);
    await one.rewind(tokens.length);
    await one.chat(one.messages!, SHORT).finished;
    assert.deepEqual(one.messages, [user("A king."), assistant(text)]);
    await one.chat([...one.messages!, user("His sons.")], SHORT).finished;
    assert.equal(one.messages?.length, 4);
  }
});

test("an answer that fails, or is stopped, leaves messages that are right", async (context) => {
  const model = await demo(context, { chatTemplate });
  const session = model.session();
  await session.chat([user("A king.")], SHORT).finished;
  const before = session.messages;
  const controller = new AbortController();
  const endless = { temperature: 0, ignoreEos: true } as const;
  for await (const _ of session.chat([user("His sons.")], { ...endless, signal: controller.signal })) {
    controller.abort();
    break;
  }
  assert.deepEqual(session.messages, before);
  const stopped = session.chat([user("His sons.")], endless);
  for await (const _ of stopped) break;
  const { text, finishReason } = await stopped.finished;
  assert.equal(finishReason, "stopped");
  assert.deepEqual(session.messages, [...before!, user("His sons."), assistant(text)]);
});

test("forks, and sessions that were saved, remember the chat; damage in it is seen", async (context) => {
  const model = await demo(context, { chatTemplate });
  const session = model.session();
  await session.chat([system, user("A king.")], SHORT).finished;
  const fork = await session.fork();
  const bytes = await session.save();
  const restored = await model.restoreSession(bytes.buffer as ArrayBuffer);
  for (const other of [fork, restored]) {
    assert.deepEqual(other.messages, session.messages);
    await other.chat([user("His sons.")], SHORT).finished;
    assert.equal(other.messages?.length, 5);
    await asOne(model, [...other.messages!.slice(0, 4)], other);
  }
  assert.equal(session.messages?.length, 3);
  for (let back = 1; back <= 60; back++) {
    const damaged = bytes.with(bytes.length - back, bytes[bytes.length - back]! ^ 4);
    assert.equal((await failure(() => model.restoreSession(damaged))).code, "Damaged", `${back} from the end`);
  }
});

test("a session goes back by whole messages", async (context) => {
  const model = await demo(context, { chatTemplate });
  const session = model.session();
  const first = await session.chat([user("A king.")], SHORT).finished;
  const second = await session.chat([user("His sons.")], SHORT).finished;
  await session.rewind(second.tokens.length);
  assert.deepEqual(session.messages, [user("A king."), assistant(first.text), user("His sons.")]);
  // The same messages are asked again.
  const again = await session.chat(session.messages!, { ...SHORT, temperature: 1.5, seed: 4 }).finished;
  assert.deepEqual(session.messages?.at(-1), assistant(again.text));
  await session.rewind(again.tokens.length + 1);
  assert.deepEqual(session.messages, [user("A king."), assistant(first.text)]);
  await session.chat([user("A queen.")], SHORT).finished;
  await asOne(model, [user("A king."), assistant(first.text), user("A queen.")], session);
  await session.rewind(session.tokens.length);
  assert.deepEqual(session.messages, []);
});

test("what generate() adds is in no message: a chat does not forget it in silence", async (context) => {
  const model = await demo(context, { chatTemplate });
  const session = model.session();
  await session.generate("Once upon a time", SHORT).finished;
  assert.equal(session.messages, null);
  const { tokens } = session;
  for (const messages of [[user("A king.")], [system, user("A king.")]]) {
    const { code, message } = await failure(() => session.chat(messages, SHORT).finished);
    assert.equal(code, "InvalidArgument");
    assert.match(message, /in no message: open another session/);
  }
  assert.deepEqual(session.tokens, tokens);
  const restored = await model.restoreSession(await session.save());
  assert.equal(restored.messages, null);
});

test("renderChat, countTokens and tokenize say what a chat is given", async (context) => {
  const model = await demo(context, { chatTemplate });
  const messages = [system, user("A king.")];
  const text = "<system>You tell fairy tales.</system>\n<user>A king.</user>\n";
  assert.equal(await model.renderChat(messages), `${text}<assistant>`);
  assert.equal(await model.renderChat(messages, { addGenerationPrompt: false }), text);
  const { promptTokens } = await model.chat(messages, SHORT).finished;
  assert.equal(await model.countTokens(messages), promptTokens.length);
  assert.deepEqual(await model.tokenize(messages), promptTokens);
  assert.ok((await model.countTokens(messages, { addGenerationPrompt: false })) < promptTokens.length);
  const { promptTokens: plain } = await model.generate("Once upon a time", SHORT).finished;
  assert.equal(await model.countTokens("Once upon a time"), plain.length);
  // More than the context holds is counted, too.
  const long = "The king. ".repeat(20_000);
  const many = await model.countTokens(long);
  assert.ok(many > model.info.contextLength);
  assert.ok((await model.countTokens([user(long)])) >= many);
  assert.equal((await failure(() => model.renderChat([]))).code, "InvalidArgument");
  assert.match((await failure(() => model.countTokens(messages, { maxTokens: 1 } as never))).message, /"maxTokens"/);
  const plainModel = await demo(context);
  assert.equal((await failure(() => plainModel.renderChat(messages))).code, "MissingTemplate");
});

const turns = (count: number) =>
  Array.from({ length: count }, (_, i) => [
    user(`Question ${i}: what did the king say to his ${i} sons?`),
    assistant(`Answer ${i}: nothing at all, for he was asleep.`),
  ]).flat();

test("shift leaves out the oldest turns as wholes, never the system message, and says how many", async (context) => {
  const model = await demo(context, { chatTemplate, contextLength: 256 });
  const shift = { ...SHORT, onContextFull: "shift" } as const;
  const messages = [system, ...turns(20), user("And then?")];
  assert.equal((await failure(() => model.chat(messages, SHORT).finished)).code, "ContextFull");
  const { droppedMessages = 0, promptTokens, tokens } = await model.chat(messages, shift).finished;
  assert.ok(droppedMessages > 0 && droppedMessages < 40 && droppedMessages % 2 === 0, `${droppedMessages}`);
  const left = [system, ...messages.slice(1 + droppedMessages)];
  const alone = await model.chat(left, SHORT).finished;
  assert.deepEqual([promptTokens, tokens], [alone.promptTokens, alone.tokens]);
  // There is room for an answer, and no more was left out than a quarter of the context and a turn.
  assert.ok(promptTokens.length <= 192 && promptTokens.length >= 64, `${promptTokens.length} tokens`);
  const fits = await model.chat([system, ...turns(2), user("And then?")], shift).finished;
  assert.equal(fits.droppedMessages, undefined);
});

test("a chat that grows keeps what was computed at most of its turns", async (context) => {
  const model = await demo(context, { chatTemplate, contextLength: 256 });
  const session = model.session();
  const options = { temperature: 0, maxTokens: 12, ignoreEos: true, onContextFull: "shift" } as const;
  let recomputed = 0;
  let dropped = 0;
  for (let turn = 0; turn < 40; turn++) {
    const {
      timings,
      promptTokens,
      droppedMessages = 0,
    } = await session.chat([user(`Turn ${turn}?`)], options).finished;
    assert.ok(droppedMessages >= dropped, "what was left out stays out");
    assert.ok(timings.cachedN + promptTokens.length <= 256);
    dropped = droppedMessages;
    if (promptTokens.length > 60) recomputed++;
  }
  assert.equal(session.messages?.length, 80);
  assert.ok(dropped > 20, `${dropped} messages are left out`);
  assert.ok(recomputed < 20, `${recomputed} of 40 turns were computed anew`);
});

test("an answer that fills the context goes on without the oldest turns", async (context) => {
  const model = await demo(context, { chatTemplate, contextLength: 256 });
  const messages = [system, ...turns(3), user("Tell me everything.")];
  const long = { temperature: 0, ignoreEos: true } as const;
  const full = await model.chat(messages, long).finished;
  assert.equal(full.finishReason, "length");
  const { tokens, droppedMessages, text, finishReason } = await model.chat(messages, {
    ...long,
    maxTokens: full.tokens.length + 30,
    onContextFull: "shift",
  }).finished;
  assert.deepEqual([droppedMessages! > 0, finishReason], [true, "length"]);
  assert.deepEqual(tokens.slice(0, full.tokens.length), full.tokens);
  assert.ok(text.startsWith(full.text));
  // From there on it is what the shorter conversation and the answer so far lead to.
  const left = [system, ...messages.slice(1 + droppedMessages!)];
  const { promptTokens } = await model.chat(left, SHORT).finished;
  const rest = await model.generate([...promptTokens, ...full.tokens], { ...long, maxTokens: 30 }).finished;
  assert.deepEqual(tokens.slice(full.tokens.length), rest.tokens);

  // A last turn that fills the context alone loses its middle, and the answer goes on.
  const alone = await model.chat([user("Tell me everything.")], { ...long, maxTokens: 600, onContextFull: "shift" })
    .finished;
  assert.equal(alone.tokens.length, 600);
  // The same seed draws the same tokens over a shift.
  const drawn = { temperature: 1, seed: 7, ignoreEos: true, maxTokens: 200, onContextFull: "shift" } as const;
  const [one, two] = await Promise.all([model.chat(messages, drawn).finished, model.chat(messages, drawn).finished]);
  assert.deepEqual(one.tokens, two.tokens);
});

test("with shift, no prompt is too long", async (context) => {
  const model = await demo(context, { chatTemplate, contextLength: 128 });
  const shift = { ...SHORT, onContextFull: "shift" } as const;
  const ids = Array.from({ length: 1000 }, (_, i) => 300 + (i % 900));
  const { promptTokens, tokens } = await model.generate(ids, shift).finished;
  assert.deepEqual(promptTokens, [...ids.slice(0, 16), ...ids.slice(-64)]);
  assert.deepEqual(tokens, (await model.generate(promptTokens, SHORT).finished).tokens);
  const session = model.session();
  await session.generate(ids.slice(0, 100), SHORT).finished;
  await session.generate(ids, shift).finished;
  assert.deepEqual(session.tokens.slice(0, 80), [...ids.slice(0, 16), ...ids.slice(-64)]);
  const story = `The beginning. ${"Once upon a time there was a king. ".repeat(3000)}The end.`;
  for (const generation of [model.generate(story, shift), model.chat([system, user(story)], shift)]) {
    const { promptTokens, finishReason } = await generation.finished;
    assert.deepEqual([promptTokens.length <= 128, finishReason], [true, "length"]);
    assert.match(await model.detokenize(promptTokens), /The end\./);
  }
});

test("roles are checked against the template", async (context) => {
  const strict =
    "{% for m in messages %}{% if m.role == 'user' %}U:{{ m.content }}{% elif m.role == 'assistant' %}A:{{ m.content }}" +
    "{% elif m.role == 'narrator' %}N:{{ m.content }}{% endif %}{% endfor %}";
  const [any, few] = [await demo(context, { chatTemplate }), await demo(context, { chatTemplate: strict })];
  const refused: [Model, number, ChatMessage[]][] = [
    [any, 0, [{ role: "usr", content: "Hi" }]],
    [any, 1, [user("Hi"), { role: "robot", content: "Hi" }]],
    [few, 0, [system, user("Hi")]],
    [few, 1, [user("Hi"), { role: "tool", content: "{}" }]],
  ];
  for (const [model, at, messages] of refused) {
    for (const call of [() => model.chat(messages, SHORT).finished, () => model.renderChat(messages)]) {
      const { code, detail, message } = await failure(call);
      assert.deepEqual([code, detail.message, detail.found], ["InvalidArgument", at, messages[at]!.role], message);
      assert.match(message, /has the role "\w+", which the chat template does not know/);
    }
  }
  assert.equal(await few.renderChat([user("a"), { role: "narrator", content: "b" }]), "U:aN:b");
  assert.match(await any.renderChat([{ role: "developer", content: "x" }, user("y")]), /^<system>x<\/system>/);
});

test("messages given to generate() are told where they belong", async (context) => {
  const model = await demo(context);
  const { code, message, detail } = await failure(
    () => model.generate([{ role: "user", content: "Hello" }] as never).finished,
  );
  assert.deepEqual([code, detail.option], ["InvalidArgument", "prompt"]);
  assert.match(message, /list of messages, which chat\(\) takes/);
});

test("OpenAI's shapes are understood where they are clear, and refused in words where they are not", async (context) => {
  const model = await demo(context, { chatTemplate });
  const parts = [
    { type: "text", text: "Once" },
    { type: "text", text: "upon" },
  ];
  assert.equal(await model.renderChat([{ role: "user", content: parts }]), "<user>Once\nupon</user>\n<assistant>");
  const image = { type: "image_url", image_url: { url: "https://example.com/a.png" } };
  const { message } = await failure(() => model.chat([{ role: "user", content: [parts[0]!, image] }]).finished);
  assert.match(message, /messages\[0\]\.content\[1\] must be \{ type: "text", text \}, not "image_url"/);
  for (const [role, content] of [
    ["user", null],
    ["user", 5],
    ["system", undefined],
    ["assistant", 5],
  ] as const) {
    const { code, message } = await failure(() => model.renderChat([{ role, content: content as never }]));
    assert.equal(code, "InvalidArgument");
    assert.match(message, /messages\[0\]\.content must be a text or a list of its parts, not /);
  }

  const schema = { type: "object", properties: { a: { enum: [1] } }, required: ["a"], additionalProperties: false };
  const say = (responseFormat: never) => model.generate("Once", { responseFormat, maxTokens: 60, seed: 1 }).text();
  for (const format of [
    jsonSchema(schema),
    { type: "json_schema", schema },
    { type: "json_schema", json_schema: { name: "answer", strict: true, schema } },
    { json_schema: { schema } },
  ]) {
    assert.deepEqual(JSON.parse(await say(format as never)), { a: 1 });
  }
  const free = await model.generate("Once", { ...SHORT, responseFormat: { type: "text" } }).text();
  assert.equal(free, await model.generate("Once", SHORT).text());
  const short = { responseFormat: { type: "json_object" }, maxTokens: 2, temperature: 0 } as const;
  assert.match(await model.generate("Once", short).text(), /^\{/);
  for (const wrong of [{ type: "json_schema" }, { type: "object", properties: {} }, { json_schema: {} }, "yaml"]) {
    const { code, message } = await failure(() => say(wrong as never));
    assert.equal(code, "InvalidArgument", JSON.stringify(wrong));
    assert.match(message, /responseFormat must be "json", \{ type: "json_schema", schema \}/);
  }
  for (const [option, meant] of [
    ["max_tokens", "maxTokens"],
    ["maxtoken", "maxTokens"],
    ["response_format", "responseFormat"],
    ["top_p", "topP"],
    ["temprature", "temperature"],
  ]) {
    const { message } = await failure(() => model.chat([user("Hi")], { [option!]: 1 }).finished);
    assert.ok(message.includes(`there is no option "${option}"; did you mean ${meant}? There are `), message);
  }
  assert.match((await failure(() => model.chat([user("Hi")], { xyzzy: 1 } as never))).message, /"xyzzy"; there are /);
});
