import { load } from "ternlight";
import demo from "ternlight/demo";

// A model that follows instructions, 248 MB at its first use:
// const source = "hf:prism-ml/Bonsai-1.7B-gguf", options = {};
const source = demo;
// The demo model goes on with stories, and has no template of its own.
const options = { chatTemplate: "{% for message in messages %}{{ message.content }}{% endfor %}" };

const [form, log, status] = [
  document.forms[0],
  document.querySelector("#log"),
  document.querySelector("[role=status]"),
];
const messages = [];
let answer;

const loading = load(source, {
  ...options,
  onProgress({ loaded, total }) {
    if (total) status.textContent = `Loading the model: ${Math.round((100 * loaded) / total)} %`;
  },
});
loading.then(
  () => status.replaceChildren("Ready"),
  (error) => status.replaceChildren(`The model could not be loaded: ${error.message}`),
);

/** What is under way; the next question waits until it has ended. */
let turn = Promise.resolve();

form.onsubmit = (event) => {
  event.preventDefault();
  const content = form.elements.text.value;
  form.reset();
  answer?.stop();
  turn = turn.then(() => ask(content)).catch((error) => status.replaceChildren(error.message));
};

async function ask(content) {
  const model = await loading;
  add(`You: ${content}`);
  messages.push({ role: "user", content });
  answer = model.chat(messages, { maxTokens: 200, onContextFull: "shift" });
  const shown = add("Model: ");
  try {
    for await (const { text } of answer) shown.append(text);
    messages.push({ role: "assistant", content: (await answer.finished).text });
  } catch (error) {
    // What has no answer is not asked again with the next question.
    messages.pop();
    throw error;
  }
}
document.querySelector("#stop").onclick = () => answer?.stop();

function add(text) {
  const paragraph = document.createElement("p");
  paragraph.style.whiteSpace = "pre-wrap";
  paragraph.append(text);
  log.append(paragraph);
  return paragraph;
}
