/**
 * openai's files and batches as a program of users: `batches.mjs URL MODEL`. Prints what it got, as one line of JSON.
 */
import OpenAI, { toFile } from "openai";

const [url, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "secret" });
const body = { model, messages: [{ role: "user", content: "Once upon a time" }], temperature: 0, max_tokens: 12 };
const line = (i, more = {}) => ({
  custom_id: `request-${i}`,
  method: "POST",
  url: "/v1/chat/completions",
  body: { ...body, ...more },
});
const toText = (lines) => lines.map((one) => JSON.stringify(one)).join("\n");

async function upload(lines) {
  const text = toText(lines);
  const file = await client.files.create({ file: await toFile(Buffer.from(text), "in.jsonl"), purpose: "batch" });
  if ((await (await client.files.content(file.id)).text()) !== text)
    throw new Error("the file came back as another one");
  return file.id;
}

async function begin(lines, window = "24h") {
  const fields = { endpoint: "/v1/chat/completions", completion_window: window };
  return client.batches.create({ ...fields, input_file_id: await upload(lines) });
}

async function ended({ id }) {
  for (;;) {
    const batch = await client.batches.retrieve(id);
    if (batch.completed_at || batch.failed_at || batch.cancelled_at || batch.expired_at) return batch;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

async function linesOf(id) {
  if (!id) return [];
  const text = await (await client.files.content(id)).text();
  return text.trimEnd().split("\n").map(JSON.parse);
}

async function resultsOf(batch) {
  const [answers, errors] = [await linesOf(batch.output_file_id), await linesOf(batch.error_file_id)];
  return {
    status: batch.status,
    counts: batch.request_counts,
    contents: answers.map(({ response }) => response.body.choices[0].message.content),
    errors: errors.map(({ error, response }) => error?.code ?? response.status_code),
  };
}

const whole = await resultsOf(await ended(await begin([line(0), line(1), line(2, { top_p: 7 })])));
// More than is computed in the time that these have.
const long = Array.from({ length: 400 }, (_, i) => line(i, { max_tokens: 200, ignore_eos: true }));
const cancelling = await begin(long);
await client.batches.cancel(cancelling.id);
const cancelled = await resultsOf(await ended(cancelling));
const expired = await resultsOf(await ended(await begin(long, "2s")));
const listed = [];
for await (const { id } of client.batches.list({ limit: 1 })) listed.push(id);
const missing = await client.batches.retrieve("batch_0").catch(({ status }) => status);
console.log(JSON.stringify({ whole, cancelled, expired, listed: listed.length, missing }));
