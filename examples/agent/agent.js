/** node agent.js QUESTION: the model calls tools until it answers. */
import { load } from "ternlight";
import demo from "ternlight/demo";

const question = process.argv.slice(2).join(" ") || "What is 17 times 23?";
// MODEL=hf:prism-ml/Bonsai-1.7B-gguf knows when to call what: 248 MB, downloaded once.
const source = process.env.MODEL ?? demo;
const isDemo = source === demo;
// The demo model was never taught to call. It is made to: once, and with a template that spells calls.
const chatTemplate = `{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}{% for message in messages %}{{ message.content }}
{% endfor %}{% if false %}<tool_call></tool_call>{% endif %}`;

const number = { type: "integer", minimum: 0, maximum: 1000 };
const tools = {
  multiply: {
    description: "Multiplies two numbers",
    parameters: {
      type: "object",
      properties: { a: number, b: number },
      required: ["a", "b"],
      additionalProperties: false,
    },
    run: ({ a, b }) => a * b,
  },
  today: {
    description: "The date of today",
    parameters: { type: "object", properties: {}, additionalProperties: false },
    run: () => new Date().toISOString().slice(0, 10),
  },
};
const described = Object.entries(tools).map(([name, { description, parameters }]) => ({
  type: "function",
  function: { name, description, parameters },
}));

const model = await load(source, isDemo ? { chatTemplate } : {});
const messages = [{ role: "user", content: question }];
for (let step = 0; step < 5; step++) {
  const toolChoice = isDemo && step > 0 ? "none" : isDemo ? { name: "multiply" } : "auto";
  const { text, toolCalls, toolErrors } = await model.chat(messages, { tools: described, toolChoice, maxTokens: 150 })
    .finished;
  for (const { reason } of toolErrors ?? []) console.log(`a call that cannot be read: ${reason}`);
  messages.push({ role: "assistant", content: text });
  if (!toolCalls?.length) {
    console.log(text.trim());
    break;
  }
  for (const { name, arguments: given } of toolCalls) {
    let result;
    try {
      result = await tools[name].run(given);
    } catch (error) {
      result = `error: ${error.message}`;
    }
    console.log(`${name}(${JSON.stringify(given)}) → ${result}`);
    messages.push({ role: "tool", name, content: String(result) });
  }
}
await model.close();
