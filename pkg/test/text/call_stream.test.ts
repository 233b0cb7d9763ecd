/** Calls in an answer that comes in pieces: the same calls, however it is cut. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { type CallEvent, CallStream } from "../../src/text/call_stream.ts";
import { findCalls } from "../../src/text/tools.ts";

const tools = [
  {
    type: "function",
    function: { name: "weather", parameters: { type: "object", properties: { city: { type: "string" } } } },
  },
  { type: "function", function: { name: "add", parameters: { type: "object" } } },
];

interface Found {
  text: string;
  calls: { name: string; id: string | undefined; arguments: string }[];
}

function gather(pieces: readonly string[]): Found {
  const stream = new CallStream(tools);
  const found: Found = { text: "", calls: [] };
  const take = (event: CallEvent) => {
    if (event.type === "text") found.text += event.text;
    else if (event.type === "call") found.calls[event.index] = { name: event.name, id: event.id, arguments: "" };
    else found.calls[event.index]!.arguments += event.text;
  };
  for (const piece of pieces) stream.push(piece).forEach(take);
  stream.end().forEach(take);
  return found;
}

const hermes = (name: string, args: string) => `<tool_call>\n{"name": "${name}", "arguments": ${args}}\n</tool_call>`;

/** Answers, with the text beside their calls. */
const answers: [answer: string, text: string][] = [
  ["There is nothing to call. {1, 2} [3] <b>", "There is nothing to call. {1, 2} [3] <b>"],
  [hermes("weather", '{"city": "Rome"}'), ""],
  [`I look.\n\n${hermes("weather", '{"city": "a \\"}] town", "n": [1, {"b": 2}]}')}`, "I look."],
  [`${hermes("weather", "{}")}\n${hermes("add", '{"a": 1, "b": 2.5e3}')}\n`, ""],
  ['<tool_call>{"arguments": {"city": "Oslo"}, "name": "weather"}</tool_call>', ""],
  ['<tool_call>{"id": "x1", "name": "add", "arguments": "{\\"a\\": 1}"}</tool_call> Done.', " Done."],
  ['<tool_call>[{"name": "add", "arguments": {}}, {"name": "add", "arguments": {"a": 2}}]</tool_call>', ""],
  ["<tool_call>\n<function=weather>\n<parameter=city>\nBonn\n</parameter>\n</function>\n</tool_call>", ""],
  ['<function=add>{"a": 1}</function>', ""],
  ['[TOOL_CALLS] [{"name": "weather", "arguments": {"city": "Lima"}}, {"name": "add", "arguments": {}}]', ""],
  ['[TOOL_CALLS]weather[CALL_ID]abc[ARGS]{"city": "Kyiv"}[TOOL_CALLS]add[ARGS]{"a": {}}', ""],
  ['{"name": "weather", "parameters": {"city": "Rio"}}', ""],
  [
    '<|python_tag|>{"type": "function", "name": "add", "parameters": {"a": [1]}}; {"name": "add", "parameters": {}}',
    "",
  ],
];

test("the calls of an answer are those that are found in the whole of it", () => {
  for (const [answer, text] of answers) {
    const found = gather([answer]);
    const { toolCalls, toolErrors } = findCalls(answer, tools);
    assert.deepEqual(toolErrors, [], answer);
    const calls = found.calls.map(({ name, id, arguments: args }) => ({
      ...(id ? { id } : {}),
      name,
      arguments: JSON.parse(args),
    }));
    assert.deepEqual(calls, toolCalls, answer);
    assert.equal(found.text, text, answer);
  }
});

test("it does not matter where an answer is cut", () => {
  for (const [answer] of answers) {
    const whole = gather([answer]);
    assert.deepEqual(gather([...answer]), whole, answer);
    for (let at = 1; at < answer.length; at++) {
      assert.deepEqual(gather([answer.slice(0, at), answer.slice(at)]), whole, `${answer}, cut at ${at}`);
    }
  }
});

test("what is no call is text, every character of it", () => {
  const texts = [
    hermes("unknown", '{"a": 1}'),
    "<tool_call> I would rather not </tool_call>",
    "<tool_call>{}</tool_call>",
    '<tool_call>{"name": "add"}</tool_call>',
    '<tool_call>{"name": 5, "arguments": {}}</tool_call>',
    '<tool_call>{"name": "add", "arguments": 7}</tool_call>',
    "<tool_call><tool_call>",
    "<function=none>{}</function>",
    "[TOOL_CALLS] none at all",
    '{"name": "unknown", "parameters": {}}',
    '{"city": "Rome"}',
    "<tool_cal",
    "<|python_tag|>print(1)",
    '  {"na',
  ];
  for (const text of texts) {
    assert.deepEqual(gather([text]), { text, calls: [] }, text);
    assert.deepEqual(gather([...text]), { text, calls: [] }, text);
  }
});

test("a call behind one that is none is found", () => {
  const answer = `<tool_call>no${hermes("add", "{}")}`;
  assert.deepEqual(gather([...answer]), {
    text: "<tool_call>no",
    calls: [{ name: "add", id: undefined, arguments: "{}" }],
  });
});

test("arguments go on before they are whole", () => {
  const stream = new CallStream(tools);
  const events = stream.push('<tool_call>{"name": "weather", "arguments": {"city": "Ro');
  assert.deepEqual(events, [
    { type: "call", index: 0, id: undefined, name: "weather" },
    { type: "arguments", index: 0, text: '{"city": "Ro' },
  ]);
  assert.equal(stream.between, false);
  stream.push('me"}}');
  assert.equal(stream.between, true);
});

test("time is proportional to the length", () => {
  const long = 200_000;
  for (const part of [
    "<tool_call>",
    "<function=",
    "{",
    " ",
    '<tool_call>{"name": "add", "arguments": "',
    "[TOOL_CALLS]a",
  ]) {
    const stream = new CallStream(tools);
    const started = performance.now();
    stream.push(part);
    for (let at = 0; at < long; at += 4) stream.push(part.slice(0, 4).padEnd(4, "x"));
    stream.end();
    assert.ok(performance.now() - started < 5000, part);
  }
});
