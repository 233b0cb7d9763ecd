/** What every host runs, as a user would write it. */
import { load } from "ternlight";

// No `await` at the top: Vite 5 and 6 build for browsers that lack it.
export async function program(source, options) {
  const chatTemplate = "{% for message in messages %}{{ message.content }}{% endfor %}";
  const model = await load(source, { chatTemplate, ...options });
  const { flavour, threads, parts } = model.info;
  const { text, tokens } = await model.generate("Once upon a time", { maxTokens: 32, temperature: 0 }).finished;
  const responseFormat = { type: "regex", pattern: " there (was|lived) an? [a-z]+\\." };
  const kept = await model.generate("Once upon a time", { responseFormat, temperature: 0 }).text();
  const messages = [{ role: "user", content: "Once upon a time" }];
  const said = await model.chat(messages, { maxTokens: 32, temperature: 0 }).text();
  const rows = await model.logits(tokens, { all: true });
  await model.close();
  return JSON.stringify({ flavour, threads, parts, text, said, kept, tokens, logits: await sha256(rows) });
}

async function sha256(rows) {
  const digest = await crypto.subtle.digest("SHA-256", await new Blob(rows).arrayBuffer());
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
