/** The provider in the AI SDK itself, of both versions that take it. */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { createTernlight, ternlight } from "@ternlight/ai-sdk";
import * as ai7 from "ai";
import * as ai6 from "ai6";
import { load } from "ternlight";
import { z } from "zod";
import { CONTINUATION, demoModel, HERMES, PLAIN, serve } from "../../scripts/testing.mjs";

const chatTemplate = PLAIN;
const options = { threads: 1, chatTemplate };
const model = ternlight(demoModel, options);
const caller = ternlight(demoModel, { threads: 1, chatTemplate: HERMES });
after(() => Promise.all([model.close(), caller.close()]));

const greedy = { model, prompt: "Once upon a time", temperature: 0, maxOutputTokens: 12 };
const long = "There was once a king who had three sons. ".repeat(12);

// Warnings are read from results here.
globalThis.AI_SDK_LOG_WARNINGS = false;

for (const [version, ai] of Object.entries({ "ai 6": ai6, "ai 7": ai7 })) {
  test(`${version}: generateText tells counts and times`, async () => {
    const { text, usage, finishReason, providerMetadata, warnings, response } = await ai.generateText(greedy);
    assert.equal(text, CONTINUATION);
    assert.equal(usage.inputTokens, 4);
    assert.equal(usage.outputTokens, 12);
    assert.equal(finishReason, "length");
    assert.deepEqual(warnings, []);
    assert.equal(response.modelId, demoModel);
    const { timings } = providerMetadata.ternlight;
    assert.equal(timings.predictedN, 12);
    assert.ok(timings.predictedPerSecond > 0);
  });

  test(`${version}: what a conversation begins with is cached`, async () => {
    const ask = (end) => ai.generateText({ ...greedy, prompt: version + long + end });
    await ask("One");
    const { usage } = await ask("Two");
    const cached = usage.inputTokenDetails.cacheReadTokens;
    assert.ok(cached >= 64 && cached % 32 === 0, `${cached} of ${usage.inputTokens}`);
    assert.equal(usage.inputTokenDetails.noCacheTokens + cached, usage.inputTokens);
  });

  test(`${version}: streamText gives the parts in their order`, async () => {
    const result = ai.streamText({ ...greedy, stopSequences: [" wife"] });
    const types = [];
    let text = "";
    for await (const part of result.fullStream) {
      if (types.at(-1) !== part.type) types.push(part.type);
      if (part.type === "text-delta") text += part.text;
    }
    assert.equal(text, " there lived a man who had a");
    const order = ["start", "start-step", "text-start", "text-delta", "text-end", "finish-step", "finish"];
    assert.deepEqual(types, order);
    assert.equal(await result.finishReason, "stop");
    assert.equal((await result.providerMetadata).ternlight.stopText, " wife");
  });

  test(`${version}: settings reach the engine`, async () => {
    const ask = (more) => ai.generateText({ ...greedy, temperature: 1, topP: 0.9, topK: 20, seed: -5, ...more });
    const { text } = await ask();
    assert.equal((await ask()).text, text);
    assert.equal((await ask({ seed: 2 ** 53 - 5 })).text, text);
    assert.notEqual((await ask({ seed: 6 })).text, text);
    const { text: other } = await ai.generateText({
      ...greedy,
      providerOptions: { ternlight: { bannedSequences: [" man"] } },
    });
    assert.ok(!other.includes(" man"), other);
    const wrong = ai.generateText({ ...greedy, maxRetries: 0, providerOptions: { ternlight: { minPee: 1 } } });
    await assert.rejects(wrong, { name: "EngineError", code: "InvalidArgument" });
  });

  test(`${version}: generateObject and streamObject keep to the schema`, async () => {
    const schema = z.object({ city: z.enum(["Oslo", "Rome"]), days: z.number().int().min(1).max(9) });
    const ask = { model, prompt: "As JSON:", maxOutputTokens: 200, temperature: 0, schema };
    const { object } = await ai.generateObject(ask);
    assert.deepEqual(schema.parse(object), object);
    const stream = ai.streamObject(ask);
    let last;
    for await (const partial of stream.partialObjectStream) last = partial;
    assert.deepEqual(last, object);
    const output = ai.Output.object({ schema });
    assert.deepEqual(
      (await ai.generateText({ ...greedy, prompt: "As JSON:", maxOutputTokens: 200, output })).output,
      object,
    );
    const any = await ai
      .generateObject({ ...ask, schema: undefined, output: "no-schema", maxOutputTokens: 60 })
      .catch((error) => error);
    assert.match(any.text ?? JSON.stringify(any.object), /^\{/);
  });

  test(`${version}: tools run in several steps, streamed and not`, async () => {
    const seen = [];
    const weather = ai.tool({
      description: "Tells the weather",
      inputSchema: z.object({ city: z.enum(["Oslo", "Rome"]) }),
      execute: async ({ city }) => {
        seen.push(city);
        return { city, sky: "clear" };
      },
    });
    const ask = {
      model: caller,
      prompt: "Is it raining?",
      maxOutputTokens: 120,
      temperature: 0,
      tools: { weather },
      stopWhen: ai.stepCountIs(3),
      prepareStep: ({ stepNumber }) => ({
        toolChoice: stepNumber < 2 ? { type: "tool", toolName: "weather" } : "none",
      }),
    };
    const { steps, text } = await ai.generateText(ask);
    assert.deepEqual(
      steps.map(({ finishReason, toolCalls }) => [finishReason === "tool-calls", toolCalls.length]),
      [
        [true, 1],
        [true, 1],
        [false, 0],
      ],
    );
    assert.deepEqual(steps[0].toolResults[0].output, { city: seen[0], sky: "clear" });
    assert.notEqual(steps[0].toolCalls[0].toolCallId, steps[1].toolCalls[0].toolCallId);
    assert.ok(text.length > 0);

    const stream = ai.streamText({ ...ask, stopWhen: ai.stepCountIs(2) });
    const types = new Set();
    let input = "";
    let call;
    for await (const part of stream.fullStream) {
      types.add(part.type);
      if (part.type === "tool-input-delta" && !call) input += part.delta;
      if (part.type === "tool-call") call ??= part;
    }
    for (const type of ["tool-input-start", "tool-input-delta", "tool-input-end", "tool-call", "tool-result"])
      assert.ok(types.has(type), type);
    assert.deepEqual(JSON.parse(input), call.input);
  });

  test(`${version}: the results of tools are in the next step's prompt`, async () => {
    // A template that shows what it was given, to a model that goes on with it.
    const said = [
      { role: "user", content: "Ask" },
      {
        role: "assistant",
        content: [{ type: "tool-call", toolCallId: "c1", toolName: "weather", input: { city: "Oslo" } }],
      },
      {
        role: "tool",
        content: [{ type: "tool-result", toolCallId: "c1", toolName: "weather", output: { type: "json", value: [1] } }],
      },
    ];
    const shown = [];
    const engine = await load(demoModel, options);
    try {
      const spy = new Proxy(engine, {
        get(target, name) {
          const value = target[name];
          if (name !== "chat") return typeof value === "function" ? value.bind(target) : value;
          return (messages, more) => {
            shown.push(messages);
            return target.chat(messages, more);
          };
        },
      });
      await ai.generateText({ model: ternlight(spy), messages: said, maxOutputTokens: 1 });
    } finally {
      await engine.close();
    }
    assert.deepEqual(shown[0], [
      { role: "user", content: "Ask" },
      {
        role: "assistant",
        content: "",
        tool_calls: [{ id: "c1", type: "function", function: { name: "weather", arguments: { city: "Oslo" } } }],
      },
      { role: "tool", name: "weather", tool_call_id: "c1", content: "[1]" },
    ]);
  });

  test(`${version}: what has no effect is a warning`, async () => {
    const tools = { weather: ai.tool({ inputSchema: z.object({ city: z.string() }) }) };
    const schema = z.object({ city: z.enum(["Oslo"]) });
    const output = ai.Output.object({ schema });
    const { warnings, output: found } = await ai.generateText({
      ...greedy,
      model: caller,
      maxOutputTokens: 60,
      tools,
      output,
    });
    assert.deepEqual(found, { city: "Oslo" });
    assert.equal(warnings.length, 1);
    assert.equal(warnings[0].type, "unsupported");
    assert.match(warnings[0].feature, /tools/);
  });

  test(`${version}: files of text are read, others are refused`, async () => {
    const asked = (mediaType) => {
      const file = { type: "file", mediaType, data: new TextEncoder().encode("Once upon a time") };
      return { ...greedy, prompt: undefined, maxRetries: 0, messages: [{ role: "user", content: [file] }] };
    };
    const name = "AI_UnsupportedFunctionalityError";
    assert.equal((await ai.generateText(asked("text/plain"))).text, CONTINUATION);
    await assert.rejects(ai.generateText(asked("image/png")), { name });
    // Streamed it is a part, of which the page that reads the stream hears as well.
    const errors = [];
    const stream = () => ai.streamText({ ...asked("image/png"), onError: ({ error }) => errors.push(error.name) });
    const parts = [];
    for await (const part of stream().fullStream) if (part.type === "error") parts.push(part.error.name);
    const response = stream().toUIMessageStreamResponse({ onError: (error) => error.message });
    assert.match(await response.text(), /"type":"error","errorText":"The model reads text, and no files of type image/);
    assert.deepEqual([parts, errors], [[name], [name, name]]);
  });

  test(`${version}: embedMany`, async () => {
    const embedding = ternlight.embeddingModel(demoModel, options);
    const { embeddings, usage } = await ai.embedMany({
      model: embedding,
      values: ["the king", "the queen", "a stone"],
    });
    assert.equal(embeddings.length, 3);
    assert.ok(Math.abs(Math.hypot(...embeddings[0]) - 1) < 1e-5);
    const like = (i) => ai.cosineSimilarity(embeddings[0], embeddings[i]);
    assert.ok(like(1) > like(2));
    assert.ok(usage.tokens > 3);
    const { embedding: one } = await ai.embed({ model: embedding, value: "the king" });
    assert.deepEqual(one, embeddings[0]);
  });

  test(`${version}: an abort ends the answer`, async () => {
    const abort = new AbortController();
    const result = ai.streamText({ ...greedy, maxOutputTokens: 100_000, abortSignal: abort.signal, onError() {} });
    let pieces = 0;
    const types = [];
    for await (const part of result.fullStream) {
      types.push(part.type);
      if (part.type === "text-delta" && ++pieces === 3) abort.abort();
    }
    assert.equal(types.at(-1), "abort");
    const engine = await model.load();
    for (let i = 0; (await engine.status()).running > 0; i++) assert.ok(i < 1000, "it still runs");
    const early = AbortSignal.abort();
    await assert.rejects(ai.generateText({ ...greedy, abortSignal: early, maxRetries: 0 }), { name: "AbortError" });
  });

  test(`${version}: what goes wrong is the engine's own error`, async () => {
    const bare = ternlight(demoModel, { threads: 1 });
    await assert.rejects(ai.generateText({ ...greedy, model: bare, maxRetries: 0 }), { code: "MissingTemplate" });
    const errors = [];
    const stream = ai.streamText({ ...greedy, model: bare, onError: ({ error }) => errors.push(error) });
    await stream.consumeStream();
    assert.deepEqual(
      errors.map(({ code }) => code),
      ["MissingTemplate"],
    );
    await bare.close();
    const absent = ternlight("./no-such-model.gguf");
    await assert.rejects(ai.generateText({ ...greedy, model: absent, maxRetries: 0 }), { code: "NotFound" });
  });

  test(`${version}: how far a load is comes as raw parts`, async (context) => {
    const server = await serve({ mounts: { "/": demoModel } });
    context.after(() => server.close());
    const remote = ternlight(server.url, { ...options, cache: false });
    context.after(() => remote.close());
    assert.equal(await remote.availability(), "downloadable");
    const wish = { includeRawChunks: true, include: { rawChunks: true } };
    const result = ai.streamText({ ...greedy, model: remote, ...wish });
    const phases = [];
    let text = "";
    for await (const part of result.fullStream) {
      if (part.type === "raw") phases.push(part.rawValue);
      if (part.type === "text-delta") text += part.text;
    }
    assert.equal(text, CONTINUATION);
    assert.ok(phases.every(({ type, loaded, total }) => type === "progress" && loaded <= total));
    assert.equal(phases[0].phase, "header");
    assert.equal(phases.at(-1).phase, "ready");
    assert.ok(phases.at(-1).total > 1e6);
    assert.equal(await remote.availability(), "available");
  });

  test(`${version}: a registry finds models by their source`, async () => {
    const provider = createTernlight({ loadOptions: options });
    const registry = ai.createProviderRegistry({ local: provider }, { separator: " > " });
    assert.equal(
      (await ai.generateText({ ...greedy, model: registry.languageModel(`local > ${demoModel}`) })).text,
      CONTINUATION,
    );
    assert.throws(() => provider.imageModel("x"), { name: "AI_NoSuchModelError" });
  });
}

test("equal sources and options share one load; another option is another model", async () => {
  const [first, same, other] = await Promise.all([
    model.load(),
    ternlight(demoModel, { chatTemplate, threads: 1 }).load(),
    caller.load(),
  ]);
  assert.equal(first, same);
  assert.notEqual(first, other);
});

test("a load is aborted when nobody waits for it any more, and begun anew later", async (context) => {
  const server = await serve({ mounts: { "/": demoModel } });
  context.after(() => server.close());
  const remote = ternlight(server.url, { ...options, cache: false });
  const [one, two] = [new AbortController(), new AbortController()];
  const waits = [remote.load({ signal: one.signal }), remote.load({ signal: two.signal })];
  const ended = Promise.allSettled(waits);
  one.abort(new Error("first"));
  await assert.rejects(waits[0], { message: "first" });
  assert.equal(await remote.availability(), "downloading");
  two.abort(new Error("second"));
  await ended;
  assert.notEqual(await remote.availability(), "downloading");
  const again = await remote.load();
  assert.equal(again.info.architecture, (await model.load()).info.architecture);
  await remote.close();
  await assert.rejects(again.chat([{ role: "user", content: "x" }]).text(), { code: "Closed" });
});

test("availability tells what does not run here", async () => {
  assert.equal(await ternlight(demoModel).availability(), "available");
  assert.equal(await ternlight("./no-such-model.gguf").availability(), "unavailable");
  assert.equal(await ternlight(new TextEncoder().encode("no model at all")).availability(), "unavailable");
  await assert.rejects(ternlight(demoModel, { thread: 1 }).availability(), { code: "InvalidArgument" });
});

test("a model that was given loaded stays open", async () => {
  const engine = await load(demoModel, options);
  const given = ternlight(engine);
  assert.equal((await ai7.generateText({ ...greedy, model: given })).text, CONTINUATION);
  await given.close();
  assert.equal(await engine.countTokens("Once upon a time"), 4);
  await engine.close();
});
