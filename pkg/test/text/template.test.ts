import assert from "node:assert/strict";
import { test } from "node:test";
import { fromGguf } from "../../src/text/from_gguf.ts";
import type { GgufText } from "../../src/text/gguf.ts";
import { MAX_TEMPLATE } from "../../src/text/limits.ts";
import { ChatTemplate } from "../../src/text/template.ts";
import { missingTemplate } from "../../src/text/template_source.ts";
import { Tokenizer } from "../../src/text/tokenizer.ts";
import { templateOf } from "./support/chat.ts";
import { failure } from "./support/check.ts";
import { chatTemplates, fixture, ggufFile, tokenizerFiles } from "./support/golden.ts";

const MESSAGES = [{ role: "user", content: " Hi " }];

for (const [name, { template, special_tokens, renderings }] of Object.entries(chatTemplates())) {
  test(`${name}: every golden rendering`, () => {
    const chat = new ChatTemplate("golden", { default: template }, special_tokens);
    const wrong = renderings.filter(({ messages, add_generation_prompt, rendered }) => {
      const render = () => chat.render(messages, { addGenerationPrompt: add_generation_prompt });
      return rendered === undefined ? failure(render).code !== "BadTemplate" : render() !== rendered;
    });
    assert.deepEqual(wrong, []);
    assert.ok(renderings.length > 0);
  });
}

test("Python's semantics: what Jinja2 renders, or an error at the same line", () => {
  const { now, variables, cases } = fixture("jinja2");
  const wrong: unknown[] = [];
  for (const { template, rendered, line } of cases) {
    const chat = new ChatTemplate("fixture", { default: template }, {});
    const render = () => chat.render([], { templateOptions: variables, now: new Date(now) });
    if (rendered === undefined) {
      const { code, detail } = failure(render);
      if (code !== "BadTemplate" || (line !== null && detail.line !== line)) wrong.push({ template, line, detail });
      continue;
    }
    try {
      const got = render();
      if (got !== rendered) wrong.push({ template, expected: rendered, got });
    } catch (error) {
      wrong.push({ template, error: String(error) });
    }
  }
  assert.deepEqual(wrong, []);
  assert.ok(cases.length > 60);
});

test("join takes a list or a text, and names what it expects", () => {
  const render = (source: string) => new ChatTemplate("test", { default: source }, {}).render([]);
  assert.equal(render("{{ '-'.join(['a', 'b']) }} {{ '-'.join('ab') }}"), "a-b a-b");
  for (const argument of ["5", "none", "{'a': 1}", ""]) {
    const { code, message } = failure(() => render(`{{ '-'.join(${argument}) }}`));
    assert.equal(code, "BadTemplate");
    assert.match(message, /a list of texts is expected/, argument);
  }
  assert.match(failure(() => render("{{ '-'.join([5]) }}")).message, /a text is expected/);
});

test("tools, variables of the caller's, and the present", () => {
  const source =
    "{{ tools|tojson }} {{ enable_thinking }} {{ strftime_now('%Y') }} {{ add_generation_prompt }} {{ bos_token }}";
  const chat = new ChatTemplate("test", { default: source }, { bos_token: "<s>" });
  const tools = [{ type: "function", function: { name: "f", description: "\u00e9 <b>" } }];
  const year = new Date().getFullYear();
  assert.equal(
    chat.render([], { tools, templateOptions: { enable_thinking: false } }),
    `[{"type": "function", "function": {"name": "f", "description": "\u00e9 <b>"}}] False ${year} True <s>`,
  );
  assert.equal(chat.render([], { addGenerationPrompt: false }), `null  ${year} False <s>`);
});

test("which template: an override, the file, the configuration by name, the GGUF's own, none", () => {
  const { json, config } = tokenizerFiles("tiny_smollm");
  const tokenizer = new Tokenizer(json, config);
  const pick = (sources: Parameters<typeof templateOf>[0]) => {
    const chat = templateOf(sources, tokenizer);
    return chat && [chat.source, chat.render(MESSAGES), chat.render(MESSAGES, { tools: [] })];
  };
  const named = [
    { name: "default", template: "D" },
    { name: "tool_use", template: "T" },
  ];
  const gguf = { get: (key: string) => (key === "tokenizer.chat_template" ? "G" : undefined) } as GgufText;
  assert.deepEqual(pick({ config: { chat_template: "C" } }), ["tokenizer_config.json", "C", "C"]);
  assert.deepEqual(pick({ config: { chat_template: named } }), ["tokenizer_config.json", "D", "T"]);
  assert.deepEqual(pick({ config: { chat_template: "C" }, file: "F" }), ["chat_template.jinja", "F", "F"]);
  assert.deepEqual(pick({ gguf }), ["tokenizer.chat_template", "G", "G"]);
  assert.deepEqual(pick({ gguf, override: "O" }), ["the chatTemplate option", "O", "O"]);
  assert.deepEqual(pick({ gguf, override: "embedded" }), ["tokenizer.chat_template", "G", "G"]);
  assert.equal(pick({ config: {} }), null);
  assert.equal(pick({}), null);
  const only = templateOf({ config: { chat_template: [{ name: "rag", template: "R" }] } }, tokenizer) as ChatTemplate;
  assert.match(failure(() => only.render(MESSAGES)).message, /called default, but rag/);
});

test("a template that is no text is refused by its file and key", () => {
  const { json, config } = tokenizerFiles("tiny_smollm");
  const tokenizer = new Tokenizer(json, config);
  const file = "tokenizer_config.json";
  for (const value of [5, true, { default: "D" }, [{ name: "default" }], ["D"]] as never[]) {
    const { code, message, detail } = failure(() => templateOf({ config: { chat_template: value } }, tokenizer));
    assert.equal(code, "BadTemplate");
    assert.deepEqual([detail.file, detail.key, detail.found], [file, "chat_template", JSON.stringify(value)]);
    assert.match(message, /^tokenizer_config\.json: chat_template: expected a text or a list of .*, found /);
    // One that is given instead does.
    assert.equal(templateOf({ config: { chat_template: value }, override: "O" }, tokenizer)?.text, "O");
  }
});

test("no template: the error says what to do", () => {
  const error = missingTemplate();
  assert.equal(error.code, "MissingTemplate");
  assert.match(error.message, /use generate .* chatTemplate option/);
});

test("the published BitNet GGUF ends its prompt with EOS: the form it was trained with is used, and said so", () => {
  const gguf = ggufFile("bitnet_packed.b158.I2_S.gguf");
  const { json, config } = fromGguf(gguf);
  const tokenizer = new Tokenizer(json, config);
  const golden = chatTemplates();
  const chat = templateOf({ gguf }, tokenizer) as ChatTemplate;
  for (const { messages, add_generation_prompt, rendered } of golden.bitnet_hf?.renderings ?? []) {
    assert.equal(chat.render(messages, { addGenerationPrompt: add_generation_prompt }), rendered);
  }
  assert.match(chat.warnings.join(), /<\|end_of_text\|>.*embedded/);

  const literal = templateOf({ gguf, override: "embedded" }, tokenizer) as ChatTemplate;
  for (const { messages, add_generation_prompt, rendered } of golden.bitnet_gguf?.renderings ?? []) {
    assert.equal(literal.render(messages, { addGenerationPrompt: add_generation_prompt }), rendered);
  }
  assert.deepEqual(literal.warnings, []);

  const llama = { ...gguf, get: (key: string) => (key === "general.architecture" ? "llama" : gguf.get(key)) };
  assert.equal(templateOf({ gguf: llama }, tokenizer)?.source, "tokenizer.chat_template");
});

test("an error says where and why", () => {
  const source =
    "{% for m in messages %}\n{# {{ #}{{ '{% {{' }}\n{% generation %}\n{{ m.content + 1 }}{% endgeneration %}{% endfor %}";
  const error = failure(() => new ChatTemplate("tokenizer_config.json", { default: source }, {}).render(MESSAGES));
  assert.equal(error.code, "BadTemplate");
  assert.equal(error.message, "chat template (tokenizer_config.json), line 4: cannot add string and integer");
  assert.deepEqual(error.detail, { source: "tokenizer_config.json", reason: "cannot add string and integer", line: 4 });
  const raised = failure(() =>
    new ChatTemplate("x", { default: "a\n{{ raise_exception('no ' ~ 'system') }}" }, {}).render([]),
  );
  assert.deepEqual([raised.detail.line, raised.detail.reason], [2, "no system"]);
  const macro = "{% macro f() %}\n{{ nothing.x }}\n{% endmacro %}\n\n{{ f() }}";
  assert.equal(failure(() => new ChatTemplate("x", { default: macro }, {}).render([])).detail.line, 2);
});

test("templates that want too much end in a typed error, soon", () => {
  const bombs = [
    "a".repeat(MAX_TEMPLATE + 1),
    `{{ 1 }}${" ".repeat(100_000)}x`,
    "{% for a in range(10 ** 12) %}{% endfor %}",
    "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
    "{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}",
    "{% set ns = namespace(s='aaaaaaaaaa') %}{% for a in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
    "{% set ns = namespace(s=[1, 2]) %}{% for a in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
    "{% set ns = namespace(s=[1]) %}{% for a in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s }}",
    "{% set ns = namespace(s=[1]) %}{% for a in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s|tojson }}",
    "{% set ns = namespace(s=[1]) %}{% for a in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s == ns.s }}",
    "{{ 'a' * 10 ** 9 }}",
    "{{ ('a' * 10 ** 6).replace('', 'b' * 10 ** 6) }}",
    "{{ (range(10 ** 6)|list)|join('b' * 10 ** 6) }}",
    "{{ 'a\\nb'|indent(10 ** 12) }}",
    "{% for a in range(1000000) %}aaaaaaaaaaaaaaaaaaaaaa{% endfor %}",
    `{{ ${"(".repeat(50_000)} }}`,
    `{{ ${"[".repeat(50_000)} }}`,
  ];
  for (const source of bombs) {
    const start = performance.now();
    const error = failure(() => new ChatTemplate("bomb", { default: source }, {}).render(MESSAGES));
    assert.equal(error.code, "BadTemplate", source.slice(0, 60));
    assert.ok(performance.now() - start < 20_000, source.slice(0, 60));
  }
});

test("what cannot be rendered at all is a typed error too", () => {
  const loop: Record<string, unknown> = {};
  loop.loop = loop;
  const chat = new ChatTemplate("x", { default: "{{ x }}" }, {});
  for (const x of [1n, Symbol("s"), loop]) {
    assert.equal(failure(() => chat.render([], { templateOptions: { x } })).code, "BadTemplate");
  }
});
