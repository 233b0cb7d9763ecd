/** The Prompt API over the demo model, algorithm by algorithm as its specification has them. */

import assert from "node:assert/strict";
import { after, test } from "node:test";
import {
  type ChatMessage,
  type ChatOptions,
  type Finished,
  type LoadOptions,
  load,
  type Model,
  type Session,
} from "ternlight";
import { install, languageModel, type LanguageModel as Talk } from "ternlight/prompt-api";
import { DEMO } from "../api/support/model.ts";
import { CONTINUATION, HERMES, PLAIN } from "../server/support/app.ts";
import { serveFiles } from "../source/support/server.ts";

const options: LoadOptions = { threads: 1, chatTemplate: PLAIN };
const model = await load(DEMO, options);
const small = await load(DEMO, { ...options, contextLength: 96 });
const caller = await load(DEMO, { threads: 1, chatTemplate: HERMES });
after(() => Promise.all([model.close(), small.close(), caller.close()]));
const LanguageModel = languageModel(model);

const greedy = { samplingMode: "most-predictable" } as const;
const once = "Once upon a time";
const words = /^ there lived a man/;
/** Answers end when they say this: the model itself goes on for long. */
const brief = { responseConstraint: / there lived a man who had a wife and a wife\./ };
const schema = {
  type: "object",
  properties: { days: { type: "integer", maximum: 9 } },
  required: ["days"],
  additionalProperties: false,
};

const fails = (work: Promise<unknown>, name: string, message = /./) =>
  assert.rejects(work, (error) => {
    const { name: found, message: text } = error as Error;
    assert.equal(found, name, text);
    assert.match(text, message);
    return true;
  });

async function talk(given: Parameters<typeof LanguageModel.create>[0] = {}, type = LanguageModel): Promise<Talk> {
  return type.create({ ...greedy, ...given });
}

test("create: an object with its mode, window and usage; the constructor makes none", async () => {
  const session = await LanguageModel.create();
  assert.ok(session instanceof EventTarget && session instanceof (LanguageModel as unknown as typeof EventTarget));
  assert.equal(String(session), "[object LanguageModel]");
  assert.equal(session.contextUsage, 0);
  assert.equal(session.contextWindow, model.info.contextLength);
  assert.equal(session.samplingMode, "balanced");
  assert.deepEqual([session.inputUsage, session.inputQuota], [session.contextUsage, session.contextWindow]);
  assert.equal((await talk()).samplingMode, "most-predictable");
  assert.throws(() => new (LanguageModel as unknown as new () => Talk)(), TypeError);
});

test("validate and canonicalize options: modes, raw parameters, languages, types, tools", async () => {
  await fails(LanguageModel.create({ samplingMode: "wild" as "creative" }), "TypeError");
  await fails(LanguageModel.create({ samplingMode: "creative", topK: 3 }), "TypeError");
  await fails(LanguageModel.create({ topK: Number.NaN }), "TypeError");
  await fails(LanguageModel.create({ expectedInputs: [{ type: "text", languages: ["not a tag"] }] }), "RangeError");
  await fails(LanguageModel.create({ expectedInputs: [{ type: "smell" as "text" }] }), "TypeError");
  await fails(LanguageModel.create({ expectedInputs: [{ type: "image" }] }), "NotSupportedError");
  await fails(LanguageModel.create({ tools: [{ name: "x" } as never] }), "TypeError");
  await fails(LanguageModel.create({ topK: 0 }), "RangeError");
  await fails(LanguageModel.create({ temperature: -1 }), "RangeError");
  const raw = await LanguageModel.create({ topK: Number.POSITIVE_INFINITY, temperature: 99 });
  assert.equal(raw.samplingMode, null, "numbers stand for no mode");
  assert.equal((await LanguageModel.create({ samplingMode: "slightly-creative" })).samplingMode, "slightly-creative");
  const { defaultTopK, maxTopK, defaultTemperature, maxTemperature } = await LanguageModel.params();
  assert.deepEqual([raw.topK, raw.temperature], [maxTopK, maxTemperature]);
  assert.ok(defaultTopK <= maxTopK && defaultTemperature <= maxTemperature);
  const expected = { expectedInputs: [{ type: "text", languages: ["en", "ja"] }, { type: "tool-response" }] } as const;
  assert.ok(await LanguageModel.create({ ...expected, expectedOutputs: [{ type: "text" }, { type: "tool-call" }] }));
});

test("options of a wrong kind are refused by name", async () => {
  const cases: [object | null | number, RegExp][] = [
    [null, /^options must be an object, not null$/],
    [5, /^options must be an object, not 5$/],
    [{ signal: 5 }, /^signal must be an AbortSignal, not 5$/],
    [{ monitor: "x" }, /^monitor must be a function, not "x"$/],
    [{ topK: "3" }, /^topK must be a number, not "3"$/],
    [{ temperature: null }, /^temperature must be a number, not null$/],
    [{ initialPrompts: 5 }, /^initialPrompts must be a list, not 5$/],
    [{ initialPrompts: null }, /^initialPrompts must be a list, not null$/],
    [{ initialPrompts: [null] }, /^a message must be an object, not null$/],
    [{ tools: null }, /^tools must be a list, not null$/],
    [{ tools: 5 }, /^tools must be a list, not 5$/],
    [{ tools: [null] }, /^tools\[0\] must be \{ name, .*\}, not null$/],
    [{ tools: [{ name: "x" }] }, /^tools\[0\]\.description must be a text, not undefined$/],
    [{ expectedInputs: 5 }, /^expectedInputs must be a list, not 5$/],
    [{ expectedOutputs: [null] }, /^expectedOutputs\[0\] must be \{ type, languages \}, not null$/],
    [{ expectedInputs: [{ type: "text", languages: 5 }] }, /^expectedInputs\[0\]\.languages must be a list, not 5$/],
    [{ expectedInputs: [{ type: "text", languages: [5] }] }, /languages\[0\] must be a language tag, not 5$/],
  ];
  for (const [given, message] of cases) await fails(LanguageModel.create(given as never), "TypeError", message);
  await fails(LanguageModel.availability(null as never), "TypeError", /^options must be an object/);
  const session = await talk();
  for (const options of [null, 5, { signal: {} }] as never[]) {
    const message = /^(options must be an object|signal must be an AbortSignal), not /;
    await fails(session.prompt("x", options), "TypeError", message);
    await fails(session.append("x", options), "TypeError", message);
    await fails(session.clone(options), "TypeError", message);
    await fails(session.measureContextUsage("x", options), "TypeError", message);
    assert.throws(() => session.promptStreaming("x", options), { name: "TypeError", message });
  }
});

test("availability: of the model, of types and of options", async (context) => {
  assert.equal(await LanguageModel.availability(), "available");
  assert.equal(await LanguageModel.availability({ expectedOutputs: [{ type: "audio" }] }), "unavailable");
  await fails(LanguageModel.availability({ samplingMode: "wild" as "creative" }), "TypeError");
  assert.equal(await languageModel("./no-such-model.gguf").availability(), "unavailable");
  const { url } = await serveFiles(context, {}, { answer: () => true });
  const waiting = languageModel(`${url}model.gguf`, { cache: false });
  const abort = new AbortController();
  const creating = waiting.create({ signal: abort.signal });
  assert.equal(await waiting.availability(), "downloading");
  abort.abort();
  await fails(creating, "AbortError");
});

test("create: the monitor hears of the download, from 0 to 1", async () => {
  const events: { loaded: number; total: number }[] = [];
  const Remote = languageModel(DEMO, { ...options, dotProduct: "dot4" });
  const heard: unknown[] = [];
  const session = await Remote.create({
    monitor(monitor) {
      monitor.addEventListener("downloadprogress", (event) =>
        events.push(event as unknown as { loaded: number; total: number }),
      );
      monitor.ondownloadprogress = (event) => heard.push(event.type);
    },
  });
  assert.equal(heard.length, events.length);
  assert.equal(events[0]!.loaded, 0);
  assert.equal(events.at(-1)!.loaded, 1);
  assert.ok(events.every(({ loaded, total }, i) => total === 1 && (i === 0 || loaded > events[i - 1]!.loaded)));
  session.destroy();
  await assert.rejects(
    LanguageModel.create({
      monitor() {
        throw new Error("of the page");
      },
    }),
    { message: "of the page" },
  );
});

test("create: what cannot be loaded, aborts and initial prompts", async () => {
  await fails(languageModel("./no-such-model.gguf").create(), "NotSupportedError");
  await fails(languageModel(DEMO, { threads: 1 }).create(), "NotSupportedError", /chat template/);
  await fails(LanguageModel.create({ signal: AbortSignal.abort() }), "AbortError");
  const initialPrompts = [
    { role: "system", content: "Be brief. " },
    { role: "user", content: "Who? " },
    { role: "assistant", content: "A king. " },
  ] as const;
  const session = await talk({ initialPrompts });
  assert.equal(session.contextUsage, await model.countTokens("Be brief. Who? A king. "));
  const long = "There was once a king who had three sons. ".repeat(20);
  const tooLong = languageModel(small).create({ initialPrompts: [{ role: "system", content: long }] });
  await assert.rejects(tooLong, (error) => {
    const { name, requested, quota } = error as DOMException & { requested: number; quota: number };
    assert.deepEqual([name, quota], ["QuotaExceededError", 96]);
    return requested > quota;
  });
  // Validation allows a prefix here; where nothing is answered it is a message like any other.
  const begun = (prefix: boolean) =>
    talk({
      initialPrompts: [
        { role: "user", content: "Once upon a" },
        { role: "assistant", content: " time", prefix },
      ],
    });
  assert.equal((await begun(true)).contextUsage, (await begun(false)).contextUsage);
});

test("validate and canonicalize a prompt", async () => {
  const session = await talk();
  const measure = (input: unknown) => session.measureContextUsage(input as string);
  const tokens = (text: string) => model.countTokens(text);
  assert.equal(await measure(once), await tokens(once));
  assert.equal(await measure([]), 0);
  assert.equal(await measure([{ role: "user", content: once }]), await tokens(once));
  const parts = [
    { type: "text", value: "Once upon" },
    { type: "text", value: " a time" },
  ];
  assert.equal(await measure([{ role: "user", content: parts }]), await tokens(once), "texts are joined by nothing");
  assert.equal(await measure([{ role: "user", content: [] }]), 0);
  await fails(measure([{ role: "nobody", content: "x" }]), "TypeError");
  await fails(measure([{ role: "user" }]), "TypeError");
  await fails(measure([{ role: "user", content: [{ type: "text", value: 5 }] }]), "TypeError");
  await fails(measure([{ role: "user", content: [{ type: "image", value: "x" }] }]), "NotSupportedError");
  await fails(measure([{ role: "assistant", content: [{ type: "image", value: "x" }] }]), "NotSupportedError");
  await fails(measure([{ role: "user", content: "x", prefix: true }]), "SyntaxError");
  await fails(
    measure([
      { role: "assistant", content: "x", prefix: true },
      { role: "user", content: "y" },
    ]),
    "SyntaxError",
  );
  await fails(
    measure([
      { role: "user", content: "x" },
      { role: "system", content: "y" },
    ]),
    "TypeError",
  );
  await session.append("One. ");
  await fails(session.prompt([{ role: "system", content: "y" }]), "TypeError");
});

test("prompt: the answer, and what the conversation holds by then", async () => {
  const session = await talk();
  const text = await session.prompt(once, brief);
  assert.equal(text, CONTINUATION);
  assert.equal(
    session.contextUsage,
    (await model.countTokens(once)) + (await model.tokenize(text, { addSpecial: false })).length,
  );
  const before = session.contextUsage;
  await session.prompt(" And", { responseConstraint: / [a-z]{2,8}/ });
  assert.ok(session.contextUsage > before);
});

test("prompts of one object are answered one after the other", async () => {
  const session = await talk();
  const [first, second] = await Promise.all([
    session.prompt(once, brief),
    session.prompt(" Then", { responseConstraint: / [a-z]{2,8}/ }),
  ]);
  assert.equal(first, CONTINUATION);
  const other = await talk();
  await other.prompt(once, brief);
  assert.equal(await other.prompt(" Then", { responseConstraint: / [a-z]{2,8}/ }), second);
});

test("promptStreaming: the pieces, a cancel, and an error in the stream", async () => {
  const session = await talk();
  const pieces: string[] = [];
  for await (const piece of session.promptStreaming(once, brief) as unknown as AsyncIterable<string>)
    pieces.push(piece);
  assert.ok(pieces.length > 3);
  assert.equal(pieces.join(""), CONTINUATION);
  const usage = session.contextUsage;
  const reader = session.promptStreaming(" And").getReader();
  assert.equal(typeof (await reader.read()).value, "string");
  await reader.cancel();
  assert.equal(session.contextUsage, usage, "what was cancelled leaves nothing");
  for (let i = 0; (await model.status()).running > 0; i++) assert.ok(i < 1000, "it still runs");
  const wrong = session.promptStreaming([{ role: "nobody" as "user", content: "x" }]).getReader();
  await fails(wrong.read(), "TypeError");
});

test("append: messages without an answer, and the next prompt goes on from them", async () => {
  const session = await talk();
  assert.equal(await session.append(once), undefined);
  assert.equal(session.contextUsage, 4);
  assert.match(await session.prompt(" there", { responseConstraint: / lived a man/ }), / lived a man/);
  const before = session.contextUsage;
  const added = [{ role: "assistant", content: " time", prefix: true }] as const;
  const more = await session.measureContextUsage([{ role: "assistant", content: " time" }]);
  await session.append(added);
  assert.equal(session.contextUsage, before + more);
  await fails(session.append("x", { signal: AbortSignal.abort() }), "AbortError");
});

test("measureContextUsage: of what is behind the conversation, and nothing changes", async () => {
  const session = await talk({ initialPrompts: [{ role: "user", content: "One. " }] });
  const usage = session.contextUsage;
  const more = await session.measureContextUsage("Two. Three.");
  assert.equal(more, await session.measureInputUsage("Two. Three."));
  assert.equal(session.contextUsage, usage);
  await session.append("Two. Three.");
  assert.equal(session.contextUsage, usage + more);
  await fails(session.measureContextUsage("x", { omitResponseConstraintInput: true }), "TypeError");
});

test("responseConstraint: a schema, regular expressions, and what is none", async () => {
  const session = await talk();
  assert.ok(JSON.parse(await session.prompt("As JSON:", { responseConstraint: schema })).days <= 9);
  const ask = (responseConstraint: object) => session.prompt("Say:", { responseConstraint });
  assert.match(await ask(/^(yes|no)$/), /^(yes|no)$/);
  assert.match(await ask(/^(YES|NO)$/i), /^(yes|no)$/i);
  assert.equal(await ask(/costs \d\$/).then((text) => text.length), 8, "an escaped dollar is a dollar");
  assert.match(
    await session.prompt("Say:", { responseConstraint: /a|b/, omitResponseConstraintInput: true }),
    /^[ab]$/,
  );
  await fails(session.prompt("x", { responseConstraint: "text" as unknown as object }), "TypeError");
  await fails(
    session.prompt("x", { responseConstraint: /(?=look)ahead/ }),
    "NotSupportedError",
    /^responseConstraint, line 1, column 1: look/,
  );
  await fails(ask({ items: { not: {} } }), "NotSupportedError", /^responseConstraint, #\/items: /);
  const flag = "v";
  await fails(ask(new RegExp("a|b", flag)), "NotSupportedError", /^responseConstraint: the flag v/);
  assert.match(await ask(/^[^\D0-9]?[0-9]{3}|^x$/), /^([0-9]{3}|x)$/);
  await fails(session.prompt("x", { omitResponseConstraintInput: true }), "TypeError");
  const cramped = await talk({}, languageModel(small));
  await fails(cramped.prompt("x", { responseConstraint: /[a-z ]{5000}/ }), "SyntaxError", /cut off/);
});

test("prefix: the answer goes on from it", async () => {
  const session = await talk();
  const asked = [
    { role: "user", content: "Once upon a" },
    { role: "assistant", content: " time", prefix: true },
  ] as const;
  assert.equal(await session.prompt(asked, brief), CONTINUATION);
  const plain = await talk();
  await plain.append([...asked.slice(0, 1), { role: "assistant", content: ` time${CONTINUATION}` }]);
  assert.equal(session.contextUsage, plain.contextUsage);
});

test("tools: their functions are called, all of an answer at once, and the answer knows of them", async () => {
  const asked: unknown[] = [];
  const weather = {
    name: "weather",
    description: "Tells the weather",
    inputSchema: {
      type: "object",
      properties: { city: { enum: ["Oslo", "Rome"] } },
      required: ["city"],
      additionalProperties: false,
    },
    execute: async (input: Record<string, unknown>) => {
      asked.push(input);
      return "clear";
    },
  };
  const calls = `<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>\n`;
  let forced = 0;
  const calling = steered((given) =>
    forced++ === 0
      ? { ...given, responseFormat: { type: "regex", pattern: `(${escaped(calls)}){2}` } }
      : { ...given, maxTokens: 8 },
  );
  const session = await languageModel(calling).create({ ...greedy, tools: [weather] });
  const text = await session.prompt("Is it raining?");
  assert.deepEqual(asked, [{ city: "Oslo" }, { city: "Oslo" }]);
  assert.equal(forced, 2);
  assert.ok(text.length > 0 && !text.includes("tool_call"));
  const broken = await languageModel(calling).create({
    ...greedy,
    tools: [{ ...weather, execute: () => Promise.reject(new Error("no network")) }],
  });
  forced = 0;
  const usage = broken.contextUsage;
  await fails(broken.prompt("Is it raining?"), "Error", /no network/);
  assert.equal(broken.contextUsage, usage);

  // One that never settles holds up nobody.
  let asks = () => {};
  const never = () => {
    asks();
    return new Promise<string>(() => {});
  };
  const hanging = await languageModel(calling).create({ ...greedy, tools: [{ ...weather, execute: never }] });
  const ask = async (signal?: AbortSignal) => {
    forced = 0;
    const called = new Promise<void>((resolve) => {
      asks = resolve;
    });
    const answer = hanging.prompt("Is it raining?", { signal });
    answer.catch(() => {});
    await called;
    return { answer };
  };
  const abort = new AbortController();
  const { answer: aborted } = await ask(abort.signal);
  abort.abort(new Error("enough"));
  await fails(aborted, "Error", /enough/);
  assert.equal(hanging.contextUsage, usage);
  const { answer: destroyed } = await ask();
  hanging.destroy();
  await fails(destroyed, "AbortError", /destroyed/);
});

test("tools: they take context, and must fit", async () => {
  const weather = {
    name: "weather",
    description: "Tells the weather",
    inputSchema: { type: "object" },
    execute: async () => "clear",
  };
  const Caller = languageModel(caller);
  const session = await Caller.create({ ...greedy, tools: [weather] });
  const { contextUsage } = session;
  assert.ok(contextUsage > 10, String(contextUsage));
  const added = await session.measureContextUsage("Is it raining?");
  await session.append("Is it raining?");
  assert.equal(session.contextUsage, contextUsage + added);
  assert.equal((await session.clone()).contextUsage, contextUsage + added);
  const initialPrompts = [{ role: "user", content: "Is it raining?" }] as const;
  assert.equal((await Caller.create({ tools: [weather], initialPrompts })).contextUsage, contextUsage + added);
  const tools = [{ ...weather, description: "It tells the weather. ".repeat(200) }];
  await assert.rejects(Caller.create({ tools }), (error) => {
    const { name, requested, quota } = error as DOMException & { requested: number; quota: number };
    assert.deepEqual([name, quota], ["QuotaExceededError", caller.info.contextLength]);
    return requested > quota;
  });
  // What they take is no message: the system's may still come first.
  const systemFirst = await Caller.create({ ...greedy, tools: [weather] });
  await systemFirst.append([{ role: "system", content: "Be brief." }]);
  await fails(systemFirst.append([{ role: "system", content: "Be brief." }]), "TypeError");
});

test("tools: what they have answered is a message, as the available type tool-response says", async () => {
  const expected = { expectedInputs: [{ type: "tool-response" }], expectedOutputs: [{ type: "tool-call" }] } as const;
  assert.equal(await LanguageModel.availability(expected), "available");
  assert.equal(await LanguageModel.availability({ expectedInputs: [{ type: "tool-call" }] }), "unavailable");
  const asked: (readonly ChatMessage[])[] = [];
  const session = await languageModel(listened(caller, asked)).create({ ...greedy, ...expected });
  const response = (value: unknown, role = "user") =>
    session.append([{ role: role as "user", content: [{ type: "tool-response", value }] }]);
  await session.append([
    {
      role: "user",
      content: [
        {
          type: "tool-response",
          value: { callId: "1", name: "weather", result: [{ type: "object", value: { c: 5 } }] },
        },
        { type: "tool-response", value: { callId: "2", name: "time", errorMessage: "no clock" } },
        { type: "text", value: "Is it " },
        { type: "text", value: "raining?" },
      ],
    },
  ]);
  assert.deepEqual(asked.at(-1), [
    { role: "tool", name: "weather", tool_call_id: "1", content: '{"c":5}' },
    { role: "tool", name: "time", tool_call_id: "2", content: "error: no clock" },
    { role: "user", content: "Is it raining?" },
  ]);
  await response("clear");
  assert.deepEqual(asked.at(-1)?.at(-1), { role: "tool", content: "clear" });
  await fails(response({ callId: "1" }), "TypeError");
  await fails(response({ result: [{ type: "smell", value: 1 }] }), "TypeError");
  await fails(response({ result: [{ type: "image", value: 1 }] }), "NotSupportedError");
  await fails(response("clear", "assistant"), "NotSupportedError");
});

test("tools: a call of a name that is none is no error, and the model hears of it", async () => {
  const weather = { name: "weather", description: "", inputSchema: { type: "object" }, execute: async () => "clear" };
  const pattern = escaped('<tool_call>\n{"name": "wether", "arguments": {}}\n</tool_call>\n');
  for (const known of [false, true]) {
    const asked: (readonly ChatMessage[])[] = [];
    const calling = steered((given, messages) => {
      asked.push(messages);
      if (asked.length > 1) return { ...given, maxTokens: 8 };
      // The engine takes the name for a call where its own list has it.
      const tools = [...given.tools!, ...(known ? [{ type: "function", function: { name: "wether" } }] : [])];
      return { ...given, tools, responseFormat: { type: "regex", pattern } };
    });
    const session = await languageModel(calling).create({ ...greedy, tools: [weather] });
    await session.prompt("Is it raining?");
    assert.equal(asked.length, known ? 2 : 1);
    if (known) assert.equal(asked[1]!.at(-1)!.content, 'There is no tool "wether".');
  }
});

/** A model whose answers get other options: one that calls by itself is too large for tests. */
const steered = (change: (given: ChatOptions, messages: readonly ChatMessage[]) => ChatOptions): Model =>
  new Proxy(caller, {
    get(target, name) {
      if (name !== "session") {
        const value = target[name as keyof typeof target];
        return typeof value === "function" ? value.bind(target) : value;
      }
      return () => {
        const session = target.session();
        const chat = session.chat.bind(session);
        session.chat = (messages, given = {}) => chat(messages, change(given, messages));
        return session;
      };
    },
  });

/** Another name for a model, which notes what it is asked. */
const listened = (of: Model, asked: (readonly ChatMessage[])[]): Model =>
  new Proxy(of, {
    get(target, name) {
      if (name === "chat") {
        return (messages: readonly ChatMessage[], given?: ChatOptions) => {
          asked.push(messages);
          return target.chat(messages, given);
        };
      }
      const value = target[name as keyof typeof target];
      return typeof value === "function" ? value.bind(target) : value;
    },
  });

const escaped = (text: string) => text.replace(/[{}|()[\]\\.*+?^$]/g, "\\$&");

test("contextoverflow: the oldest prompts go, never the system's, and what is too long is refused", async () => {
  const session = await talk({ initialPrompts: [{ role: "system", content: "Be brief. " }] }, languageModel(small));
  const seen: string[] = [];
  session.oncontextoverflow = ({ type }) => seen.push(type);
  session.onquotaoverflow = ({ type }) => seen.push(type);
  session.addEventListener("contextoverflow", () => seen.push("listener"));
  const story = "There was once a king who had three sons and a daughter. ".repeat(2);
  for (let i = 0; i < 6; i++) await session.append(story);
  assert.deepEqual([...new Set(seen)].sort(), ["contextoverflow", "listener", "quotaoverflow"]);
  assert.ok(session.contextUsage < 96);
  // The system's message is still there.
  const kept = await session.prompt("x", { responseConstraint: /[a-z]{3}/ });
  assert.equal(kept.length, 3);
  seen.length = 0;
  session.oncontextoverflow = null;
  await fails(session.prompt(story.repeat(6)), "QuotaExceededError");
  assert.ok(!seen.includes("contextoverflow"), "a prompt that does not fit alone evicts nothing");
});

test("contextoverflow: initial prompts stay, whoever said them", async () => {
  const initialPrompts = [
    { role: "system", content: "Be brief. " },
    { role: "user", content: "Who? " },
    { role: "assistant", content: "A king. " },
  ] as const;
  const asked: (readonly ChatMessage[])[] = [];
  const session = await talk({ initialPrompts }, languageModel(listened(small, asked)));
  let overflows = 0;
  session.oncontextoverflow = () => overflows++;
  const story = "There was once a king who had three sons and a daughter. ".repeat(2);
  for (const more of [session, await session.clone()]) {
    for (let i = 0; i < 4; i++) await more.append(`${i} ${story}`);
    assert.deepEqual(asked.at(-1)!.slice(0, 3), initialPrompts);
    assert.ok(asked.at(-1)!.length < 7);
  }
  assert.ok(overflows > 0);
  // The engine would leave them out of an answer that goes on behind the context's end.
  assert.ok((await session.prompt("Go on: ")).length > 0);
  assert.ok(session.contextUsage <= 96);
  await session.append("And?");
  assert.deepEqual(asked.at(-1)!.slice(0, 3), initialPrompts);
});

test("an answer that fills the context evicts, too", async () => {
  const session = await talk({}, languageModel(small));
  let overflows = 0;
  session.addEventListener("contextoverflow", () => overflows++);
  const story = "There was once a king who had three sons and a daughter. ".repeat(2);
  await session.append(story);
  await session.append(story);
  assert.equal(overflows, 0);
  assert.ok(session.contextUsage > 48);
  const text = await session.prompt("Go on: ", { responseConstraint: /(?: [a-z]{1,6}){50}/ });
  assert.equal(text.split(" ").length, 51);
  assert.equal(overflows, 1);
  assert.ok(session.contextUsage <= 96);
  assert.match(await session.prompt("And?", { responseConstraint: / [a-z]{2,8}/ }), /^ [a-z]{2,8}$/);
});

test("clone: goes on from the same place, apart from the first", async () => {
  const session = await talk();
  await session.prompt(once, brief);
  const clone = await session.clone();
  assert.ok(clone !== session && clone instanceof (LanguageModel as unknown as typeof EventTarget));
  assert.deepEqual([clone.contextUsage, clone.samplingMode], [session.contextUsage, session.samplingMode]);
  const ask = { responseConstraint: / [a-z]{2,8} [a-z]{2,8}/ };
  const usage = session.contextUsage;
  const answer = await clone.prompt(" Then", ask);
  assert.equal(session.contextUsage, usage);
  assert.equal(await session.prompt(" Then", ask), answer);
  session.destroy();
  assert.match(await clone.prompt(" Then", ask), / [a-z]{2,8}/);
  await fails(session.clone(), "AbortError");
  await fails(clone.clone({ signal: AbortSignal.abort() }), "AbortError");
});

test("clone: what was computed is not computed again", async () => {
  const timings: Finished["timings"][] = [];
  const noted = (session: Session): Session => {
    const [chat, fork] = [session.chat.bind(session), session.fork.bind(session)];
    session.chat = (messages, given) => {
      // The model itself goes on for long; a forced answer has tokens that its text does not have when it is read again.
      const generation = chat(messages, { ...given, maxTokens: 13 });
      generation.finished.then((finished) => timings.push(finished.timings));
      return generation;
    };
    session.fork = async () => noted(await fork());
    return session;
  };
  const watched = new Proxy(model, {
    get(target, name) {
      if (name === "session") return () => noted(target.session());
      const value = target[name as keyof typeof target];
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
  const session = await talk({}, languageModel(watched));
  // Not whole blocks: what the engine would find by itself is less.
  await session.prompt(`${"There was once a king who had three sons and a daughter. ".repeat(4)}${once}`);
  const held = session.contextUsage;
  assert.ok(held % 32 > 4, String(held));
  const clone = await session.clone();
  const added = await clone.measureContextUsage(" Then");
  await clone.prompt(" Then");
  const { promptN, recomputedN = 0, cachedN } = timings.at(-1)!;
  assert.equal(timings.length, 2);
  // The last token of an answer is read by nobody before the next prompt.
  assert.ok(promptN + recomputedN <= added + 1, `${promptN} and ${recomputedN} computed for ${added}`);
  assert.ok(cachedN! >= held - 1, `${cachedN} of ${held} found`);
});

test("abort and destroy end what runs, and leave the conversation as it was", async () => {
  const session = await talk();
  await session.append("One. ");
  const usage = session.contextUsage;
  const abort = new AbortController();
  const asked = session.prompt("Two. ", { signal: abort.signal });
  setTimeout(() => abort.abort(new Error("enough")), 30);
  await assert.rejects(asked, { message: "enough" });
  assert.equal(session.contextUsage, usage);
  assert.match(await session.prompt(once, brief), words);
  const [running, next] = [session.prompt("Three. "), session.prompt("Four. ")];
  setTimeout(() => session.destroy(), 30);
  await Promise.all([fails(running, "AbortError", /destroyed/), fails(next, "AbortError", /destroyed/)]);
  await fails(session.prompt("x"), "AbortError");
  assert.equal(session.destroy(), undefined);
  for (let i = 0; (await model.status()).running > 0; i++) assert.ok(i < 1000, "it still runs");
});

test("an abort of what waits takes it out of the queue at once, and the others keep their order", async () => {
  const session = await talk();
  const abort = new AbortController();
  const order: string[] = [];
  const note = (name: string) => (error?: unknown) => void order.push(error instanceof Error ? `no ${name}` : name);
  const stop = new AbortController();
  const first = session.prompt("One. ", { signal: stop.signal }).then(note("first"), note("first"));
  const prompt = session.prompt("Two. ", { signal: abort.signal }).then(note("prompt"), note("prompt"));
  const append = session.append("Two. ", { signal: abort.signal }).then(note("append"), note("append"));
  const reader = session.promptStreaming("Two. ", { signal: abort.signal }).getReader();
  const stream = reader.read().then(note("stream"), note("stream"));
  const last = session.append("Three. ").then(note("last"));
  abort.abort();
  await Promise.all([prompt, append, stream]);
  assert.deepEqual(order, ["no prompt", "no append", "no stream"]);
  stop.abort();
  await Promise.all([first, last]);
  assert.deepEqual(order.slice(3), ["no first", "last"]);
  assert.equal(session.contextUsage, await model.countTokens("Three. "));
});

test("abort of the signal of a creation destroys what it has made", async () => {
  const abort = new AbortController();
  const session = await talk({ signal: abort.signal });
  const clone = await session.clone();
  const asked = [
    session.prompt("One. "),
    session.append("Two. "),
    session.promptStreaming("Three. ").getReader().read(),
  ];
  for (const one of asked) (one as Promise<unknown>).catch(() => {});
  abort.abort(new Error("the page has gone on"));
  for (const one of asked) await fails(one, "Error", /the page has gone on/);
  await fails(session.prompt("Four. "), "Error", /the page has gone on/);
  assert.match(await clone.prompt(once, brief), words);
});

test("install: where there is none, and over another one only when asked", async () => {
  const globals = globalThis as { LanguageModel?: unknown };
  assert.ok(!("LanguageModel" in globals));
  try {
    assert.equal(install(model), true);
    const { LanguageModel: first } = globals;
    assert.equal(install(small), false);
    assert.equal(globals.LanguageModel, first);
    assert.equal(install(small, { override: true }), true);
    assert.notEqual(globals.LanguageModel, first);
    const session = await (globals.LanguageModel as typeof LanguageModel).create();
    assert.equal(session.contextWindow, 96);
    const detail = { option: "source", expected: "a model, or where its bytes are", found: "null" };
    assert.throws(() => install(null as never, { override: true }), { code: "InvalidArgument", detail });
  } finally {
    delete globals.LanguageModel;
  }
});
