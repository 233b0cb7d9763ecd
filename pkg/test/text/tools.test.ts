/** Calls of tools as models write them, and as they spoil them. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { Tokenizer } from "../../src/text/tokenizer.ts";
import { callFormat, findCalls } from "../../src/text/tools.ts";
import { stopwatch } from "./support/check.ts";

const parameters = {
  type: "object",
  properties: { city: { type: "string" }, days: { type: "integer" } },
  required: ["city"],
};
const TOOLS = [
  { type: "function", function: { name: "get_weather", description: "of a city", parameters } },
  { name: "now", description: "the time" },
];
const PARIS = { name: "get_weather", arguments: { city: "Paris" } };
const NOW = { name: "now", arguments: {} };
const DAYS = { name: "get_weather", arguments: { city: "7", days: 3 } };

const json = JSON.stringify;
const llama = ({ name, arguments: parameters }: typeof PARIS) => json({ name, parameters });

const right: [string, string, object[]][] = [
  ["Hermes", `<tool_call>\n${json(PARIS)}\n</tool_call>`, [PARIS]],
  ["Hermes, with words around", `Let me see.\n<tool_call>${json(PARIS)}</tool_call>\nDone.`, [PARIS]],
  ["two of them", `<tool_call>\n${json(PARIS)}\n</tool_call>\n<tool_call>\n${json(NOW)}\n</tool_call>`, [PARIS, NOW]],
  ["a list of them", `<tool_call>\n${json([PARIS, NOW])}\n</tool_call>`, [PARIS, NOW]],
  ["arguments as a text", `<tool_call>${json({ ...PARIS, arguments: json(PARIS.arguments) })}</tool_call>`, [PARIS]],
  ["after thoughts", `<think>{"name": 3</think>\n\n<tool_call>\n${json(NOW)}\n</tool_call>`, [NOW]],
  [
    "marks in a text",
    `<tool_call>${json({ ...PARIS, arguments: { city: "[TOOL_CALLS]{\\" } })}</tool_call>`,
    [{ ...PARIS, arguments: { city: "[TOOL_CALLS]{\\" } }],
  ],
  [
    "Qwen 3 Coder",
    "<tool_call>\n<function=get_weather>\n<parameter=city>\n7\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
    [DAYS],
  ],
  [
    "Mistral",
    `[TOOL_CALLS] [${json({ ...PARIS, id: "abc123def" })}, ${json(NOW)}]`,
    [{ id: "abc123def", ...PARIS }, NOW],
  ],
  ["Mistral, without a space and with an end", `[TOOL_CALLS][${json(PARIS)}]</s>`, [PARIS]],
  [
    "Mistral since 2025",
    `Well.[TOOL_CALLS]get_weather[ARGS]${json(PARIS.arguments)}[TOOL_CALLS]now[ARGS]{}`,
    [PARIS, NOW],
  ],
  ["Mistral with ids", `[TOOL_CALLS]get_weather[CALL_ID]c1[ARGS]${json(PARIS.arguments)}`, [{ id: "c1", ...PARIS }]],
  ["Llama 3", llama(PARIS), [PARIS]],
  ["Llama 3.1", `<|python_tag|>${llama(PARIS)}`, [PARIS]],
  ["Llama 3.2, two of them", `${llama(PARIS)}; ${llama(NOW as never)}`, [PARIS, NOW]],
  ["with its type", `{"type": "function", ${llama(PARIS).slice(1)}`, [PARIS]],
  ["Functionary", `<function=get_weather>${json(PARIS.arguments)}</function><function=now></function>`, [PARIS, NOW]],
];

test("every spelling", () => {
  for (const [name, text, expected] of right) {
    assert.deepEqual(findCalls(text, TOOLS), { toolCalls: expected, toolErrors: [] }, name);
  }
});

test("what is no call is none", () => {
  for (const text of [
    "",
    "It is sunny.",
    '{"weather": "sunny"}',
    "[1, 2]",
    "if (a < b) { name }",
    '"name"',
    "<tool_cal",
  ]) {
    assert.deepEqual(findCalls(text, TOOLS), { toolCalls: [], toolErrors: [] }, text);
  }
});

test("what was meant as a call and is none is told, and hides no other", () => {
  for (const [text, reason] of [
    ["<tool_call>\n{name: 1}\n</tool_call>", /JSON/],
    [`<tool_call>\n${json(PARIS)}`, /no <\/tool_call>/],
    ["<tool_call></tool_call>", /JSON/],
    ["<tool_call>3</tool_call>", /names no tool/],
    ["<tool_call>null</tool_call>", /names no tool/],
    ['<tool_call>{"arguments": {}}</tool_call>', /names no tool/],
    ['<tool_call>{"name": "rm", "arguments": {}}</tool_call>', /there is no tool "rm"/],
    ['<tool_call>{"name": "now"}</tool_call>', /arguments are no object/],
    ['<tool_call>{"name": "now", "arguments": [1]}</tool_call>', /arguments are no object/],
    ['<tool_call>{"name": "now", "arguments": "{"}</tool_call>', /JSON/],
    ['[TOOL_CALLS] [{"name": "now"', /JSON/],
    ["[TOOL_CALLS]", /JSON/],
    ["[TOOL_CALLS]now[ARGS]{", /JSON/],
    ['{"name": "get_weather", "parameters": {"city": "Par', /JSON/],
    ["<function=now>{}", /no <\/function>/],
    ["<function=now>{</function>", /JSON/],
  ] as const) {
    const { toolCalls, toolErrors } = findCalls(text, TOOLS);
    assert.deepEqual(toolCalls, [], text);
    assert.equal(toolErrors.length, 1, text);
    assert.match(toolErrors[0]!.reason, reason, text);
    assert.ok(text.includes(toolErrors[0]!.text), text);
  }
  const broken = `<tool_call>{</tool_call><tool_call>${json(NOW)}</tool_call>`;
  const { toolCalls, toolErrors } = findCalls(broken, TOOLS);
  assert.deepEqual([toolCalls, toolErrors.map(({ text }) => text)], [[NOW], ["<tool_call>{</tool_call>"]]);
});

test("a call that is cut anywhere is a whole call, an error, or none, and never throws", () => {
  for (const [name, text, expected] of right) {
    for (let end = 0; end < text.length; end++) {
      const { toolCalls } = findCalls(text.slice(0, end), TOOLS);
      assert.ok(toolCalls.length <= expected.length, `${name} ${end}`);
      for (const [n, call] of toolCalls.entries()) {
        // A list that is cut has no calls at all.
        assert.deepEqual(Object.keys(call), Object.keys(expected[n]!), `${name} ${end}`);
      }
    }
  }
});

const demo = (name: string) =>
  JSON.parse(readFileSync(new URL(`../../models/ternlight-demo/${name}`, import.meta.url)).toString());
const plain = new Tokenizer(demo("tokenizer.json"), null);
const marks = ["<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]"].map((content, n) => ({
  id: 4096 + n,
  content,
  special: n > 1,
}));
const own = demo("tokenizer.json");
const marked = new Tokenizer({ ...own, added_tokens: [...own.added_tokens, ...marks] }, null);

test("a format of nothing but calls follows the template's spelling and the vocabulary's tokens", () => {
  const grammar = (template: string, tokenizer: Tokenizer, choice: "required" | { name: string } = "required") =>
    JSON.parse(callFormat(template, TOOLS, choice, tokenizer).source) as { grammar: string; schemas: object[] };
  const hermes = grammar("{{ '<tool_call>' }}", marked);
  assert.match(
    hermes.grammar,
    /^call0: <\[4096\]> "\\n\{\\"name\\": \\"" "get_weather" .* @schema0 "\}\\n" <\[4097\]>$/m,
  );
  assert.deepEqual(hermes.schemas, [parameters, { type: "object" }]);
  assert.match(grammar("<tool_call>", plain).grammar, /^call0: "<tool_call>" "\\n/m);
  assert.match(grammar("[TOOL_CALLS]", marked).grammar, /^start: <\[4098\]> "\[" call .*"\]"$/m);
  assert.match(grammar("[TOOL_CALLS] [ARGS]", marked).grammar, /^call1: <\[4098\]> "now" <\[4099\]> @schema1/m);
  const one = grammar('{"name": function name, "parameters": …}', plain, { name: "now" });
  assert.deepEqual([one.schemas.length, one.grammar.includes("get_weather")], [1, false]);
  assert.throws(() => grammar("{{ messages }}", plain), { code: "UnsupportedOption" });
  assert.throws(() => grammar("<tool_call>", plain, { name: "rm" }), { code: "InvalidArgument" });
});

test("an answer is searched in time proportional to its length", () => {
  const tools = [{ name: "f", parameters: { type: "object" } }];
  const parts = [
    "<function=",
    "<function=f>",
    "<function=f><parameter=",
    "<function=f><parameter=a>",
    "<parameter=a>",
    "[",
  ];
  for (const part of [
    ...parts,
    "<tool_call>",
    "[TOOL_CALLS]",
    "[TOOL_CALLS]f",
    '{"name"',
    '{"name";',
    " ",
    "\n",
    "{",
  ]) {
    for (const [before, after] of [
      ["", ""],
      ["<tool_call><function=f>", "</tool_call>"],
      ["<tool_call><function=f>", "</function></tool_call>"],
      ["[TOOL_CALLS]", ""],
      ['{"name"', ""],
    ] as const) {
      const text = before + part.repeat(Math.ceil(200_000 / part.length)) + after;
      const spent = stopwatch();
      findCalls(text, tools);
      const ms = spent();
      assert.ok(ms < 2000, `${before}${part}…${after}: ${ms} ms`);
    }
  }
});
