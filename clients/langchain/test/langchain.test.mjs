/** The classes in LangChain itself, and an agent and a retrieval as its users write them. */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { AIMessage, HumanMessage, SystemMessage, ToolMessage, trimMessages } from "@langchain/core/messages";
import { StringOutputParser } from "@langchain/core/output_parsers";
import { ChatPromptTemplate } from "@langchain/core/prompts";
import { RunnablePassthrough, RunnableSequence } from "@langchain/core/runnables";
import { tool } from "@langchain/core/tools";
import { FakeVectorStore } from "@langchain/core/utils/testing";
import { ChatTernlight, TernlightEmbeddings, TernlightLLM } from "@ternlight/langchain";
import { createAgent, createMiddleware } from "langchain";
import { load } from "ternlight";
import { z } from "zod";
import { CONTINUATION, demoModel, HERMES, PLAIN } from "../../scripts/testing.mjs";

const loadOptions = { threads: 1, chatTemplate: PLAIN };
const greedy = { model: demoModel, loadOptions, temperature: 0, maxTokens: 12 };
const chat = new ChatTernlight(greedy);
const caller = new ChatTernlight({ ...greedy, loadOptions: { threads: 1, chatTemplate: HERMES }, maxTokens: 200 });
after(() => Promise.all([chat.close(), caller.close()]));

const prompt = "Once upon a time";
const weather = tool(async ({ city }) => `clear in ${city}`, {
  name: "weather",
  description: "Tells the weather",
  schema: z.object({ city: z.enum(["Oslo", "Rome"]) }),
});

/** The engine, with what `chat` is given noted. */
async function spied(context, options = loadOptions) {
  const engine = await load(demoModel, options);
  context.after(() => engine.close());
  const asked = [];
  let most = 0;
  const spy = new Proxy(engine, {
    get(target, name) {
      const value = target[name];
      if (name !== "chat" && name !== "generate") return typeof value === "function" ? value.bind(target) : value;
      return (input, more) => {
        asked.push({ input, more });
        const generation = target[name](input, more);
        // The answer may come after the test has closed the engine.
        target.status().then(
          ({ running, waiting }) => (most = Math.max(most, running + waiting)),
          (error) => assert.equal(error.code, "Closed"),
        );
        return generation;
      };
    },
  });
  return { spy, asked, most: () => most };
}

/** `chat` of a model whose answers begin with some words. */
const spoken =
  (model, words) =>
  (...given) => {
    const generation = model.chat(...given);
    return new Proxy(generation, {
      get(target, name) {
        if (name !== Symbol.asyncIterator)
          return typeof target[name] === "function" ? target[name].bind(target) : target[name];
        return async function* () {
          yield { text: words, tokens: [] };
          yield* target;
        };
      },
    });
  };

test("a chat model answers, counts and takes its options from fields and calls", async () => {
  const answer = await chat.invoke(prompt);
  assert.ok(AIMessage.isInstance(answer));
  assert.equal(answer.content, CONTINUATION);
  assert.equal(answer.usage_metadata.input_tokens, 4);
  assert.equal(answer.usage_metadata.output_tokens, 12);
  assert.equal(answer.response_metadata.finish_reason, "length");
  assert.ok(answer.response_metadata.timings.predictedPerSecond > 0);
  const short = await chat.invoke(prompt, { maxTokens: 3 });
  assert.equal(short.usage_metadata.output_tokens, 3);
  const stopped = await chat.invoke(prompt, { stop: [" wife"] });
  assert.equal(stopped.content, " there lived a man who had a");
  assert.equal(stopped.response_metadata.stop_text, " wife");
  const misspelt = new ChatTernlight({ ...greedy, maxToken: 3 });
  await assert.rejects(misspelt.invoke(prompt), { name: "EngineError", code: "InvalidArgument" });
  await assert.rejects(chat.withConfig({ minP: 2 }).invoke(prompt), { code: "InvalidArgument" });
});

test("streaming gives the pieces, and callbacks hear of each", async () => {
  const tokens = [];
  const ends = [];
  const callbacks = [
    { handleLLMNewToken: (token) => void tokens.push(token), handleLLMEnd: (output) => void ends.push(output) },
  ];
  let all;
  const pieces = [];
  for await (const chunk of await chat.stream(prompt, { callbacks })) {
    pieces.push(chunk.content);
    all = all ? all.concat(chunk) : chunk;
  }
  assert.equal(pieces.join(""), CONTINUATION);
  assert.ok(pieces.length > 6);
  assert.equal(tokens.join(""), CONTINUATION);
  assert.equal(all.usage_metadata.output_tokens, 12);
  assert.equal(ends[0].generations[0][0].text, CONTINUATION);
  const errors = [];
  const bad = chat.invoke(prompt, {
    minP: 2,
    callbacks: [{ handleLLMError: (error) => void errors.push(error.code) }],
  });
  await assert.rejects(bad);
  assert.deepEqual(errors, ["InvalidArgument"]);
  const events = [];
  for await (const { event } of chat.streamEvents(prompt, { version: "v2" })) events.push(event);
  assert.deepEqual([...new Set(events)], ["on_chat_model_start", "on_chat_model_stream", "on_chat_model_end"]);
});

/** The events of version 3, and what they come to. */
async function streamed(model, input, options) {
  const stream = model.streamEvents(input, { version: "v3", ...options });
  const events = [];
  for await (const event of stream) events.push(event);
  const { reason } = events.at(-1);
  return { events, reason, message: await stream.output };
}

test("streamEvents of version 3 gives blocks of text and of calls, and how it ended", async (context) => {
  const { events, reason, message } = await streamed(chat, prompt);
  const kinds = [
    "message-start",
    "content-block-start",
    "content-block-delta",
    "content-block-finish",
    "message-finish",
  ];
  assert.deepEqual([...new Set(events.map(({ event }) => event))], kinds);
  assert.equal(events.map(({ delta }) => delta?.text ?? "").join(""), CONTINUATION);
  assert.deepEqual([message.text, reason, message.response_metadata.finish_reason], [CONTINUATION, "length", "length"]);
  const { usage_metadata, response_metadata } = message;
  assert.deepEqual([usage_metadata.input_tokens, usage_metadata.output_tokens], [4, 12]);
  assert.equal(response_metadata.timings.predictedN, 12);
  assert.equal((await streamed(chat, prompt, { stop: ["man"] })).reason, "stop");

  const options = { tools: [weather], tool_choice: "required", oneCall: true, maxTokens: 200 };
  const called = await streamed(caller, "Is it raining?", options);
  const { tool_calls: calls } = await caller.invoke("Is it raining?", options);
  assert.ok(calls.length > 0);
  const shown = ({ name, args }) => ({ name, args });
  assert.deepEqual([called.message.tool_calls.map(shown), called.reason], [calls.map(shown), "tool_use"]);

  // The answer goes on for some tokens until somebody has read that the call is whole.
  let maxTokens = called.message.usage_metadata.output_tokens;
  let cut = called;
  while (cut.message.tool_calls.length > 0 && --maxTokens > 0) {
    cut = await streamed(caller, "Is it raining?", { ...options, maxTokens });
  }
  assert.deepEqual([cut.message.tool_calls, cut.reason], [[], "length"]);
  assert.match(cut.events.at(-2).content.error, /^the arguments of weather are no whole JSON: /);

  // A text in front of a call is a block of its own.
  const { spy } = await spied(context, { threads: 1, chatTemplate: HERMES });
  const words = "Let me look.";
  const said = new Proxy(spy, { get: (target, name) => (name === "chat" ? spoken(target, words) : target[name]) });
  const both = await streamed(new ChatTernlight({ model: said, temperature: 0 }), "Is it raining?", options);
  assert.deepEqual(both.message.tool_calls.map(shown), calls.map(shown));
  assert.equal(both.message.text, words);
  const starts = both.events.filter(({ event }) => event === "content-block-start");
  assert.deepEqual(
    starts.map(({ index, content }) => [index, content.type]),
    [[0, "text"], ...calls.map((_, i) => [i + 1, "tool_call_chunk"])],
  );

  const abort = new AbortController();
  const endless = chat.streamEvents(prompt, { version: "v3", maxTokens: 400, signal: abort.signal });
  const aborted = async () => {
    for await (const { event } of endless) if (event === "content-block-delta") abort.abort(new Error("enough"));
  };
  await assert.rejects(aborted(), { message: "enough" });
});

test("messages of every kind are a template's", async (context) => {
  const { spy, asked } = await spied(context);
  const call = { id: "c1", name: "weather", args: { city: "Oslo" }, type: "tool_call" };
  await new ChatTernlight({ model: spy, maxTokens: 1 }).invoke([
    new SystemMessage("Be brief."),
    new HumanMessage({
      content: [
        { type: "text", text: "Is it" },
        { type: "text", text: "raining?" },
      ],
    }),
    new AIMessage({ content: "I ask.", tool_calls: [call] }),
    new ToolMessage({ content: "clear", tool_call_id: "c1", name: "weather" }),
  ]);
  const called = { id: "c1", type: "function", function: { name: "weather", arguments: { city: "Oslo" } } };
  assert.deepEqual(asked[0].input, [
    { role: "system", content: "Be brief." },
    {
      role: "user",
      content: [
        { type: "text", text: "Is it" },
        { type: "text", text: "raining?" },
      ],
    },
    { role: "assistant", content: "I ask.", tool_calls: [called] },
    { role: "tool", content: "clear", tool_call_id: "c1", name: "weather" },
  ]);
  const image = new HumanMessage({ content: [{ type: "image_url", image_url: { url: "data:," } }] });
  await assert.rejects(chat.invoke([image]), { code: "InvalidArgument" });
});

test("a batch goes through the engine's batch, and is never too long for it", async (context) => {
  const { spy, asked, most } = await spied(context, { ...loadOptions, maxSequences: 3, maxWaiting: 1 });
  const model = new ChatTernlight({ model: spy, temperature: 0, maxTokens: 6 });
  const prompts = Array.from({ length: 20 }, (_, i) => `Number ${i}`);
  const answers = await model.batch(prompts);
  assert.equal(asked.length, 20);
  assert.ok(most() > 1 && most() <= 3, `${most()} at once`);
  const alone = await model.invoke("Number 7");
  assert.equal(answers[7].content, alone.content);
  // Who gives up while it waits leaves its place to others.
  const abort = new AbortController();
  const waits = prompts.map((one) => model.invoke(one, { signal: abort.signal }).catch((error) => error.name));
  abort.abort();
  assert.deepEqual([...new Set(await Promise.all(waits))], ["AbortError"]);
  assert.equal((await model.invoke("Number 7")).content, alone.content);
});

test("bindTools makes calls, whole and streamed", async () => {
  const bound = caller.bindTools([weather], { tool_choice: "weather" });
  const { tool_calls: calls, response_metadata } = await bound.invoke("Is it raining?");
  assert.equal(calls.length, 1);
  assert.equal(calls[0].name, "weather");
  assert.match(calls[0].args.city, /^(Oslo|Rome)$/);
  assert.ok(calls[0].id);
  assert.equal(response_metadata.finish_reason, "tool_calls");
  let all;
  for await (const chunk of await bound.stream("Is it raining?")) all = all ? all.concat(chunk) : chunk;
  assert.deepEqual(
    all.tool_calls.map(({ name, args }) => ({ name, args })),
    [{ name: "weather", args: calls[0].args }],
  );
  const any = await caller.bindTools([weather], { tool_choice: "any", oneCall: true }).invoke("Is it raining?");
  assert.equal(any.tool_calls.length, 1);
  assert.equal(any.response_metadata.finish_reason, "tool_calls");
});

test("a call that is cut off cannot be made, whole and streamed", async () => {
  const ran = [];
  const read = tool(async ({ path }) => void ran.push(path), {
    name: "read",
    description: "Reads a file",
    schema: z.object({ path: z.string().max(60) }),
  });
  const bound = caller.bindTools([read], { tool_choice: "read" });
  const { tool_calls: whole } = await bound.invoke("Is it raining?");
  assert.equal(whole.length, 1);
  const lengths = new Set();
  for (let maxTokens = 4; maxTokens < 64; maxTokens += 4) {
    const { content, tool_calls: calls, invalid_tool_calls: cut } = await bound.invoke("Is it raining?", { maxTokens });
    // Before its arguments begin, it is no call but a text.
    const found = content === "" ? [...calls.map(({ args }) => args.path), ...cut.map(({ name }) => name)] : [];
    assert.deepEqual(found, content !== "" ? [] : calls.length > 0 ? [whole[0].args.path] : ["read"], `${maxTokens}`);
    for (const { args, error } of cut) {
      assert.match(args, /^\{/);
      assert.match(error, /^the arguments of read are no whole JSON: /);
      lengths.add(args.length);
    }
    const same = ({ tool_calls, invalid_tool_calls }) => {
      const shown = ({ name, args, error }) => ({ name, args, error });
      assert.deepEqual(tool_calls.map(shown), calls.map(shown), `${maxTokens}`);
      assert.deepEqual(invalid_tool_calls.map(shown), cut.map(shown), `${maxTokens}`);
    };
    let all;
    for await (const chunk of await bound.stream("Is it raining?", { maxTokens }))
      all = all ? all.concat(chunk) : chunk;
    same(all);
    same(JSON.parse(JSON.stringify(all)).kwargs);
    for await (const { event, data } of bound.streamEvents("Is it raining?", { maxTokens, version: "v2" }))
      if (event === "on_chat_model_end") same(data.output);
  }
  assert.ok(lengths.size > 3, `cut in ${lengths.size} places`);

  const model = new ChatTernlight({ model: await caller.load(), temperature: 0, maxTokens: 56 });
  const calling = createMiddleware({
    name: "Calling",
    wrapModelCall: (request, handler) => handler({ ...request, toolChoice: "required" }),
  });
  const agent = createAgent({ model, tools: [read], middleware: [calling] });
  const { messages } = await agent.invoke({ messages: [{ role: "user", content: "Is it raining?" }] });
  assert.deepEqual([messages.length, messages[1].invalid_tool_calls.length, ran], [2, 1, []]);
});

test("withStructuredOutput keeps to a schema by each of its methods", async () => {
  const schema = z.object({ city: z.enum(["Oslo", "Rome"]), days: z.number().int().min(1).max(9) });
  const own = await caller.withStructuredOutput(schema).invoke("As JSON:");
  assert.deepEqual(schema.parse(own), own);
  const { raw, parsed } = await caller.withStructuredOutput(schema, { includeRaw: true }).invoke("As JSON:");
  assert.deepEqual(parsed, own);
  assert.deepEqual(JSON.parse(raw.content), own);
  const called = await caller
    .withStructuredOutput(schema, { method: "functionCalling", name: "place" })
    .invoke("As JSON:");
  assert.deepEqual(schema.parse(called), called);
  // A result that is cut off is none, whatever the schema would take.
  const text = z.object({ text: z.string().max(60) });
  const cut = caller.withStructuredOutput(text, { method: "functionCalling", name: "note" });
  for (const [maxTokens, problem] of [
    [20, /the answer ended before the arguments of its call, with finish_reason "length"/],
    [56, /the arguments of note are no whole JSON/],
  ]) {
    const short = cut.withConfig({ maxTokens });
    await assert.rejects(short.invoke("As JSON:"), problem);
    const streamed = async () => {
      for await (const _ of await short.stream("As JSON:"));
    };
    await assert.rejects(streamed, problem);
  }
  const plain = {
    type: "object",
    properties: { age: { type: "integer", maximum: 9 } },
    required: ["age"],
    additionalProperties: false,
  };
  assert.equal(typeof (await caller.withStructuredOutput(plain).invoke("As JSON:")).age, "number");
});

test("an LLM continues texts, in a batch and streamed", async () => {
  const llm = new TernlightLLM(greedy);
  assert.equal(await llm.invoke(prompt), CONTINUATION);
  let text = "";
  const tokens = [];
  const callbacks = [{ handleLLMNewToken: (token) => void tokens.push(token) }];
  for await (const piece of await llm.stream(prompt, { callbacks })) text += piece;
  assert.equal(text, CONTINUATION);
  assert.equal(tokens.join(""), CONTINUATION);
  const { generations, llmOutput } = await llm.generate(Array.from({ length: 50 }, () => prompt));
  assert.deepEqual([...new Set(generations.map(([one]) => one.text))], [CONTINUATION]);
  assert.equal(llmOutput.tokenUsage.completionTokens, 600);
  await assert.rejects(llm.invoke(prompt, { signal: AbortSignal.abort() }), { name: "AbortError" });
  assert.equal(await llm.invoke(prompt, { maxTokens: 2 }), CONTINUATION.split(" ").slice(0, 3).join(" "));
});

test("tokens are counted by the model's tokenizer, and nothing is fetched for it", async (context) => {
  const fetched = context.mock.method(globalThis, "fetch", () => Promise.reject(new Error("no network here")));
  const count = async (text) => (await (await chat.load()).tokenize(text, { addSpecial: false })).length;
  const text = "Rumpelstiltskin’s straw, spun: 🧵";
  assert.equal(await chat.getNumTokens(text), await count(text));
  assert.equal(await new TernlightLLM({ ...greedy, model: await chat.load() }).getNumTokens(text), await count(text));
  const image = { type: "image_url", image_url: { url: "data:," } };
  assert.equal(await chat.getNumTokens([{ type: "text", text: "Once upon" }, image]), await count("Once upon"));
  const said = Array.from({ length: 20 }, (_, i) => new HumanMessage(`${i}: ${text}`));
  const maxTokens = (await count(`10: ${text}`)) * 3;
  const kept = await trimMessages(said, { maxTokens, tokenCounter: chat, strategy: "last" });
  assert.deepEqual([kept.length, kept[2].content], [3, `19: ${text}`]);
  assert.equal(fetched.mock.callCount(), 0);
});

test("a retrieval finds what is nearest and answers with it", async () => {
  const embeddings = new TernlightEmbeddings({ model: demoModel, loadOptions });
  const texts = ["The king rode through the forest.", "The queen sat in the castle.", "A stone lay in the river."];
  const rows = await embeddings.embedDocuments([...texts, ...Array.from({ length: 70 }, () => texts[0])]);
  assert.equal(rows.length, 73);
  assert.deepEqual(rows[72], rows[0]);
  assert.ok(Math.abs(Math.hypot(...rows[0]) - 1) < 1e-5);
  assert.deepEqual(await embeddings.embedQuery(texts[1]), rows[1]);

  const store = new FakeVectorStore(embeddings);
  await store.addDocuments(texts.map((pageContent) => ({ pageContent, metadata: {} })));
  const retriever = store.asRetriever({ k: 1 });
  const chain = RunnableSequence.from([
    {
      context: retriever.pipe((found) => found.map(({ pageContent }) => pageContent).join("\n")),
      question: new RunnablePassthrough(),
    },
    ChatPromptTemplate.fromTemplate("{context} {question}"),
    { said: (value) => value.toString(), answer: chat.pipe(new StringOutputParser()) },
  ]);
  const { said, answer } = await chain.invoke("The queen sat in the garden.");
  assert.match(said, /The queen sat in the castle\. The queen sat in the garden\./);
  assert.ok(answer.length > 10);
});

test("an agent calls a tool and answers with what it says", async () => {
  let steps = 0;
  const first = createMiddleware({
    name: "CallFirst",
    wrapModelCall: (request, handler) => handler({ ...request, toolChoice: steps++ === 0 ? "required" : "none" }),
  });
  const model = new ChatTernlight({
    ...greedy,
    loadOptions: { threads: 1, chatTemplate: HERMES },
    maxTokens: 60,
    oneCall: true,
  });
  const agent = createAgent({ model, tools: [weather], middleware: [first] });
  const { messages } = await agent.invoke({ messages: [{ role: "user", content: "Is it raining?" }] });
  assert.deepEqual(
    messages.map((message) => message.getType()),
    ["human", "ai", "tool", "ai"],
  );
  assert.match(messages[2].content, /^clear in (Oslo|Rome)$/);
  assert.equal(messages[3].tool_calls.length, 0);
  assert.ok(messages[3].content.length > 0);
});
