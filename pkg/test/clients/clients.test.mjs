/** Clients as their users write them, against a server of the demo model. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import Anthropic from "@anthropic-ai/sdk";
import { ChatOpenAI, OpenAIEmbeddings } from "@langchain/openai";
import { embed, generateText, jsonSchema, Output, streamText, tool } from "ai";
import OpenAI, { toFile } from "openai";
import { CONTINUATION, HERMES } from "../server/support/app.ts";
import { runtimes, serve } from "../server/support/command.ts";

const model = "ternlight-demo";
const content = "Once upon a time";
const messages = [{ role: "user", content }];
const schema = {
  type: "object",
  properties: { city: { type: "string", maxLength: 8 } },
  required: ["city"],
  additionalProperties: false,
};

test("openai", async (context) => {
  const { url } = await serve(context, ["--chat-template", HERMES, "--api-key", "secret"]);
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "secret" });
  const ask = { model, messages, temperature: 0, max_tokens: 12 };

  const { data } = await client.models.list();
  assert.equal(data[0].id, model);
  assert.ok(data[0].created > 1.7e9);
  assert.equal((await client.models.retrieve(model)).id, model);

  const chat = await client.chat.completions.create(ask);
  assert.equal(chat.choices[0].message.content, CONTINUATION);
  const stream = client.chat.completions.stream({ ...ask, stream_options: { include_usage: true } });
  assert.equal(await stream.finalContent(), CONTINUATION);
  assert.equal((await stream.totalUsage()).completion_tokens, 12);

  const completion = await client.completions.create({ model, prompt: content, temperature: 0, max_tokens: 12 });
  assert.equal(completion.choices[0].text, CONTINUATION);

  // The client asks for base64 and decodes it.
  const { data: rows } = await client.embeddings.create({ model, input: ["a king", "a queen"] });
  assert.equal(rows.length, 2);
  assert.ok(Math.abs(Math.hypot(...rows[0].embedding) - 1) < 1e-5);

  const tools = [{ type: "function", function: { name: "weather", parameters: schema } }];
  const called = client.chat.completions.stream({
    ...ask,
    max_tokens: 200,
    tools,
    tool_choice: "required",
    parallel_tool_calls: false,
  });
  const { tool_calls: calls } = await called.finalMessage();
  assert.equal(calls[0].function.name, "weather");
  assert.equal(typeof JSON.parse(calls[0].function.arguments).city, "string");
  const asked = { role: "assistant", content: null, tool_calls: calls };
  const told = { role: "tool", tool_call_id: calls[0].id, content: "sunny" };
  const after = await client.chat.completions.create({ ...ask, messages: [...messages, asked, told], tools });
  assert.equal(after.choices.length, 1);

  const response_format = { type: "json_schema", json_schema: { name: "place", schema, strict: true } };
  const parsed = await client.chat.completions.parse({ ...ask, max_tokens: 200, response_format });
  assert.equal(typeof parsed.choices[0].message.parsed.city, "string");

  const response = await client.responses.create({ model, input: content, temperature: 0, max_output_tokens: 12 });
  assert.equal(response.output_text, CONTINUATION);
  let text = "";
  const types = [];
  for await (const event of await client.responses.create({
    model,
    input: messages,
    temperature: 0,
    max_output_tokens: 12,
    stream: true,
  })) {
    types.push(event.type);
    if (event.type === "response.output_text.delta") text += event.delta;
  }
  assert.equal(text, CONTINUATION);
  assert.equal(types.at(-1), "response.incomplete");
  const streamed = client.responses.stream({
    model,
    input: content,
    temperature: 0,
    max_output_tokens: 200,
    tools: [{ type: "function", name: "weather", parameters: schema, strict: true }],
    tool_choice: "required",
    parallel_tool_calls: false,
  });
  const final = await streamed.finalResponse();
  assert.equal(final.output[0].type, "function_call");
  assert.equal(typeof JSON.parse(final.output[0].arguments).city, "string");

  const wrong = await client.chat.completions.create({ ...ask, model: "gpt-4" }).catch((error) => error);
  assert.ok(wrong instanceof OpenAI.NotFoundError);
  assert.equal(wrong.code, "model_not_found");
  const denied = new OpenAI({ baseURL: `${url}/v1`, apiKey: "other" });
  assert.ok((await denied.models.list().catch((error) => error)) instanceof OpenAI.AuthenticationError);
});

test("openai waits for a full queue as it is told", async (context) => {
  const { url } = await serve(context, ["--max-sequences", "1", "--max-waiting", "0"]);
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 20 });
  const ask = () => client.completions.create({ model, prompt: content, max_tokens: 40, temperature: 0 });
  const all = await Promise.all([ask(), ask(), ask(), ask()]);
  assert.equal(new Set(all.map(({ choices }) => choices[0].text)).size, 1);
});

for (const runtime of ["Node 24", "Deno", "Bun"]) {
  test(`openai with batches that end, are cancelled and expire, server and client in ${runtime}`, async (context) => {
    const folder = await mkdtemp(path.join(tmpdir(), "ternlight-batches-"));
    const flags = ["--chat-template", HERMES, "--api-key", "secret", "--batch-folder", folder];
    const { url } = await serve(context, flags, { runtime });
    // Behind the end of the server, which writes there.
    context.after(() => rm(folder, { recursive: true, force: true }));
    const [program, ...args] = runtimes[runtime];
    const script = fileURLToPath(new URL("batches.mjs", import.meta.url));
    const { stdout } = await promisify(execFile)(program, [...args, script, url, model]);
    const { whole, cancelled, expired, listed, missing } = JSON.parse(stdout);
    assert.deepEqual(whole, {
      status: "completed",
      counts: { total: 3, completed: 2, failed: 1 },
      contents: [CONTINUATION, CONTINUATION],
      errors: [400],
    });
    for (const [name, { status, counts, contents, errors }] of Object.entries({ cancelled, expired })) {
      assert.equal(status, name);
      assert.equal(contents.length + errors.length, counts.total);
      assert.ok(errors.length > 0);
      assert.deepEqual([...new Set(errors)], [`batch_${name}`]);
    }
    assert.deepEqual([listed, missing], [3, 404]);
  });
}

test("openai with files and batches", async (context) => {
  const folder = await mkdtemp(path.join(tmpdir(), "ternlight-batches-"));
  const { url } = await serve(context, ["--chat-template", HERMES, "--api-key", "secret", "--batch-folder", folder]);
  context.after(() => rm(folder, { recursive: true, force: true }));
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "secret" });
  const body = { model, messages, temperature: 0, max_tokens: 12 };
  const line = (i) => ({ custom_id: `request-${i}`, method: "POST", url: "/v1/chat/completions", body });
  const text = [0, 1, 2].map((i) => JSON.stringify(line(i))).join("\n");
  const file = await client.files.create({ file: await toFile(Buffer.from(text), "in.jsonl"), purpose: "batch" });
  assert.deepEqual([file.filename, file.bytes, file.purpose], ["in.jsonl", text.length, "batch"]);
  assert.deepEqual(await client.files.retrieve(file.id), file);
  assert.equal(await (await client.files.content(file.id)).text(), text);

  const made = { input_file_id: file.id, endpoint: "/v1/chat/completions", completion_window: "24h" };
  let batch = await client.batches.create({ ...made, metadata: { of: "a test" } });
  while (!["completed", "failed"].includes(batch.status)) {
    await new Promise((resolve) => setTimeout(resolve, 50));
    batch = await client.batches.retrieve(batch.id);
  }
  assert.deepEqual([batch.status, batch.request_counts], ["completed", { total: 3, completed: 3, failed: 0 }]);
  const answers = (await (await client.files.content(batch.output_file_id)).text()).trimEnd().split("\n");
  const contents = answers.map((one) => JSON.parse(one).response.body.choices[0].message.content);
  assert.deepEqual(contents, [CONTINUATION, CONTINUATION, CONTINUATION]);

  const other = await client.batches.create(made);
  const cancelled = await client.batches.cancel(other.id).catch((error) => error);
  // It may have ended before.
  assert.ok(cancelled.status === 409 || ["cancelling", "cancelled"].includes(cancelled.status));
  const batches = [];
  for await (const one of client.batches.list({ limit: 1 })) batches.push(one.id);
  assert.deepEqual(batches, [other.id, batch.id]);
  const files = [];
  for await (const one of client.files.list({ purpose: "batch" })) files.push(one.id);
  assert.deepEqual(files, [file.id]);
  assert.deepEqual(await client.files.delete(batch.output_file_id), {
    id: batch.output_file_id,
    object: "file",
    deleted: true,
  });
  const gone = await client.files.retrieve(batch.output_file_id).catch((error) => error);
  assert.ok(gone instanceof OpenAI.NotFoundError);
});

test("ai with @ai-sdk/openai-compatible", async (context) => {
  const { url } = await serve(context, ["--chat-template", HERMES]);
  const provider = createOpenAICompatible({
    name: "ternlight",
    baseURL: `${url}/v1`,
    includeUsage: true,
    supportsStructuredOutputs: true,
  });
  const settings = { model: provider(model), prompt: content, temperature: 0, maxOutputTokens: 12 };
  const { text, usage } = await generateText(settings);
  assert.equal(text, CONTINUATION);
  assert.equal(usage.inputTokens, 4);
  const stream = streamText(settings);
  let streamed = "";
  for await (const part of stream.textStream) streamed += part;
  assert.equal(streamed, CONTINUATION);
  assert.equal((await stream.usage).outputTokens, 12);

  const weather = tool({ inputSchema: jsonSchema(schema), execute: async ({ city }) => `sunny in ${city}` });
  const called = await generateText({
    ...settings,
    maxOutputTokens: 200,
    tools: { weather },
    toolChoice: "required",
    providerOptions: { ternlight: { parallel_tool_calls: false } },
  });
  assert.equal(called.toolCalls[0].toolName, "weather");
  assert.equal(called.toolResults[0].output, `sunny in ${called.toolCalls[0].input.city}`);
  const given = await generateText({
    ...settings,
    maxOutputTokens: 200,
    output: Output.object({ schema: jsonSchema(schema) }),
  });
  assert.equal(typeof given.output.city, "string");
  const { embedding } = await embed({ model: provider.embeddingModel(model), value: "king" });
  assert.ok(embedding.length > 100);
});

test("@langchain/openai", async (context) => {
  const { url } = await serve(context, ["--chat-template", HERMES]);
  const configuration = { baseURL: `${url}/v1`, apiKey: "none" };
  const chat = new ChatOpenAI({ model, temperature: 0, maxTokens: 12, configuration, apiKey: "none" });
  assert.equal((await chat.invoke(content)).content, CONTINUATION);
  let text = "";
  for await (const chunk of await chat.stream(content)) text += chunk.content;
  assert.equal(text, CONTINUATION);
  const tools = [{ type: "function", function: { name: "weather", description: "", parameters: schema } }];
  const caller = new ChatOpenAI({ model, temperature: 0, maxTokens: 200, configuration, apiKey: "none" });
  const { tool_calls: calls } = await caller
    .bindTools(tools, { tool_choice: "weather", parallel_tool_calls: false })
    .invoke(content);
  assert.equal(calls[0].name, "weather");
  const embeddings = new OpenAIEmbeddings({ model, configuration, apiKey: "none" });
  assert.ok((await embeddings.embedQuery("king")).length > 100);
});

test("@anthropic-ai/sdk", async (context) => {
  const { url } = await serve(context, ["--chat-template", HERMES, "--api-key", "secret"]);
  const client = new Anthropic({ baseURL: url, apiKey: "secret" });
  const ask = { model, messages, max_tokens: 12, temperature: 0 };
  const message = await client.messages.create(ask);
  assert.deepEqual(message.content, [{ type: "text", text: CONTINUATION }]);
  assert.equal(message.stop_reason, "max_tokens");
  const final = await client.messages.stream(ask).finalMessage();
  assert.deepEqual(final.content, message.content);
  assert.equal(final.usage.output_tokens, 12);
  const stopped = await client.messages.create({ ...ask, stop_sequences: [" man"] });
  assert.deepEqual([stopped.stop_reason, stopped.stop_sequence], ["stop_sequence", " man"]);
  const { input_tokens: count } = await client.messages.countTokens({ model, messages, system: "Be kind." });
  assert.ok(count > 4);
  const called = await client.messages
    .stream({
      ...ask,
      max_tokens: 200,
      tools: [{ name: "weather", input_schema: schema }],
      tool_choice: { type: "any", disable_parallel_tool_use: true },
    })
    .finalMessage();
  assert.equal(called.stop_reason, "tool_use");
  assert.equal(typeof called.content[0].input.city, "string");
  const wrong = await client.messages.create({ ...ask, model: "claude" }).catch((error) => error);
  assert.ok(wrong instanceof Anthropic.NotFoundError);
  assert.equal(wrong.error.error.type, "not_found_error");
});

test("curl, as every tutorial has it", async (context) => {
  const { url } = await serve(context);
  const body = JSON.stringify({ model, messages, temperature: 0, max_tokens: 12 });
  const flags = [
    "-s",
    `${url}/v1/chat/completions`,
    "-H",
    "Content-Type: application/json",
    "-H",
    "Authorization: Bearer no-key",
  ];
  const { stdout } = await promisify(execFile)("curl", [...flags, "-d", body]);
  assert.equal(JSON.parse(stdout).choices[0].message.content, CONTINUATION);
});
