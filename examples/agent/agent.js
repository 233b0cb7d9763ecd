/** node agent.js QUESTION: the model calls tools until it answers. */
import { load } from "ternlight";
import demo from "ternlight/demo";

const question = process.argv.slice(2).join(" ") || "What is 17 times 23?";
// MODEL=hf:prism-ml/Bonsai-1.7B-gguf knows when to call what: 248 MB, downloaded once.
const source = process.env.MODEL ?? demo;
const isDemo = source === demo;
// The demo model was never taught to call. It is made to: once, and with a template that spells calls.
const chatTemplate = `{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}{% for message in messages %}{{ message.content }}{% for call in message.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}
{% endfor %}`;

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
const MAX_STEPS = Number(process.env.STEPS ?? 5);
let answered = false;
for (let step = 0; step < MAX_STEPS && !answered; step++) {
  const toolChoice = isDemo && step > 0 ? "none" : isDemo ? { name: "multiply" } : "auto";
  const {
    text,
    toolCalls = [],
    toolErrors = [],
  } = await model.chat(messages, {
    tools: described,
    toolChoice,
    maxTokens: 150,
  }).finished;
  for (const { reason } of toolErrors) console.log(`a call that cannot be read: ${reason}`);
  answered = toolCalls.length === 0;
  if (answered) console.log(text.trim());
  // The template writes the calls as the model has learnt them, so they go as calls and not as text.
  const calls = toolCalls.map(({ id, name, arguments: given }) => ({
    ...(id && { id }),
    type: "function",
    function: { name, arguments: given },
  }));
  messages.push(
    answered ? { role: "assistant", content: text } : { role: "assistant", content: "", tool_calls: calls },
  );
  for (const { id, name, arguments: given } of toolCalls) {
    let result;
    try {
      result = await tools[name].run(given);
    } catch (error) {
      result = `error: ${error.message}`;
    }
    console.log(`${name}(${JSON.stringify(given)}) → ${result}`);
    messages.push({ role: "tool", name, content: String(result), ...(id && { tool_call_id: id }) });
  }
}
if (!answered) console.log(`There is no answer after ${MAX_STEPS} steps.`);
await model.close();
