/** node extract.js FILE: one row of CSV for each line of a text, with fields that a schema describes. */
import { readFileSync } from "node:fs";
import { load } from "ternlight";
import demo from "ternlight/demo";

const lines = readFileSync(process.argv[2] ?? "letters.txt", "utf8")
  .split("\n")
  .filter(Boolean);
// MODEL=hf:prism-ml/Bonsai-1.7B-gguf understands the letters: 248 MB, downloaded once.
const source = process.env.MODEL ?? demo;
// The demo model only writes fairy tales: its rows are of the right form, and wrong.
const options =
  source === demo ? { chatTemplate: "{% for message in messages %}{{ message.content }}{% endfor %}" } : {};

const properties = {
  customer: { type: "string", minLength: 1, maxLength: 40 },
  item: { type: "string", minLength: 1, maxLength: 40 },
  count: { type: "integer", minimum: 0, maximum: 99 },
  mood: { enum: ["happy", "neutral", "angry"] },
};
const schema = { type: "object", properties, required: Object.keys(properties), additionalProperties: false };

const cell = (value) => (/[",\r\n]/.test(value) ? `"${String(value).replaceAll('"', '""')}"` : String(value));

const model = await load(source, options);
console.log(Object.keys(properties).join(","));
// All together: the engine computes them in one batch.
const rows = lines.map(async (line) => {
  const messages = [{ role: "user", content: `Extract customer, item, count and mood from this letter:\n${line}\n` }];
  const answer = model.chat(messages, {
    maxTokens: 200,
    temperature: 0,
    responseFormat: { type: "json_schema", schema },
  });
  const { text, finishReason } = await answer.finished;
  if (finishReason !== "stop") throw new Error(`the row of "${line}" was cut off`);
  return JSON.parse(text);
});
for await (const row of rows)
  console.log(
    Object.keys(properties)
      .map((name) => cell(row[name]))
      .join(","),
  );
await model.close();
