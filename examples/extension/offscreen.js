/** The document that nobody sees: it loads the model once and answers the service worker. */
import demo from "./ternlight/dist/demo.js";
import { load } from "./ternlight/dist/index.js";

// A model that follows instructions, 248 MB at its first use:
// const source = "hf:prism-ml/Bonsai-1.7B-gguf", options = {};
const source = demo;
// The demo model only goes on with texts, and has no template of its own.
const options = { chatTemplate: "{% for message in messages %}{{ message.content }}{% endfor %}" };

let loading;

async function summarise(text) {
  loading ??= load(source, options).catch((error) => {
    loading = undefined;
    throw error;
  });
  const model = await loading;
  const question = `Summarise this page in three sentences:\n\n${text}\n`;
  // Of a page that is too long, the beginning counts.
  return model
    .chat([{ role: "user", content: question }], { truncate: "right", maxTokens: 120, temperature: 0 })
    .text();
}

chrome.runtime.onMessage.addListener(({ to, text }, _sender, answer) => {
  if (to !== "offscreen") return false;
  summarise(text).then(
    (summary) => answer({ summary }),
    (error) => answer({ error: `No summary: ${error.message}` }),
  );
  return true;
});
