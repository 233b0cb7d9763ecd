/** Chat templates: messages rendered with them as Hugging Face does. */

import { parse, tokenize } from "@huggingface/jinja";
import { EngineError } from "../types/errors.ts";
import type { ChatMessage } from "../types/index.ts";
import { brief } from "./brief.ts";
import type { Guard, Rendered } from "./guard.ts";
import { LINE_MARK, render, TemplateFailure } from "./jinja.ts";
import { MAX_TEMPLATE, MAX_TEMPLATE_SPACE } from "./limits.ts";
import { type FoundTemplate, OPTION } from "./template_source.ts";
import type { Tokenizer } from "./tokenizer.ts";

export interface RenderOptions {
  /** End with the words that begin the model's turn. @default true */
  addGenerationPrompt?: boolean;
  tools?: readonly unknown[] | null;
  /** Further variables for the template. */
  templateOptions?: Readonly<Record<string, unknown>>;
  /** What `strftime_now` tells. @default the present */
  now?: Date;
}

/** How BitNet b1.58 2B-4T was trained to chat: the template beside its safetensors. */
const BITNET_CHAT =
  "{% for message in messages %}{{ message['role'] | capitalize + ': ' + message['content'] | trim + '<|eot_id|>' }}{% endfor %}" +
  "{% if add_generation_prompt %}{{ 'Assistant: ' }}{% endif %}";

/** What renders a template that was found, or the one that its model was trained with where the file's own is known to be wrong. */
export function openTemplate({ source, templates, suspect }: FoundTemplate, tokenizer: Tokenizer): ChatTemplate {
  const tokens = tokenizer.specialTokens;
  const own = new ChatTemplate(source, templates, tokens);
  if (source === OPTION) own.compile();
  if (!suspect || !endsBeforeItBegins(own, tokenizer)) return own;
  const warning =
    `the ${source} of this file ends the text (${tokenizer.eos?.text}) right where the model should begin: ` +
    'the template beside the model\'s safetensors is used; chatTemplate "embedded" follows the file';
  return new ChatTemplate("the template of BitNet b1.58 2B-4T", { default: BITNET_CHAT }, tokens, [warning]);
}

/** The published BitNet 2B-4T GGUF puts EOS after the generation prompt. */
function endsBeforeItBegins(template: ChatTemplate, tokenizer: Tokenizer): boolean {
  if (!tokenizer.eos || !tokenizer.ends.some((end) => end.text === "<|eot_id|>")) return false;
  try {
    return template
      .render([{ role: "user", content: "Hi" }])
      .trimEnd()
      .endsWith(tokenizer.eos.text);
  } catch {
    return false;
  }
}

/** Roles that models are trained with, even where a template writes out any. */
const USUAL = ["system", "user", "assistant", "tool"];
const PROBE = "7391739173917391";

export class ChatTemplate {
  /** Where it was found, for people. */
  readonly source: string;
  readonly warnings: readonly string[];
  readonly #templates: Readonly<Record<string, string>>;
  readonly #tokens: Readonly<Record<string, string>>;
  readonly #programs = new Map<string, unknown>();
  /** By role, and by whether it is that of the first message: whether the template leaves out what it says. */
  readonly #silent = new Map<string, boolean>();

  /** @param templates by name: `default`, and `tool_use` for when tools are given */
  constructor(
    source: string,
    templates: Readonly<Record<string, string>>,
    tokens: Readonly<Record<string, string>>,
    warnings: readonly string[] = [],
  ) {
    this.source = source;
    this.warnings = warnings;
    this.#templates = templates;
    this.#tokens = tokens;
  }

  /** UTF-16 units of the template used without tools. */
  get length(): number {
    return this.text.length;
  }

  /** The template used without tools. */
  get text(): string {
    return this.#templates.default ?? "";
  }

  /** The text that tools are rendered by. */
  get forTools(): string {
    return this.#templates.tool_use ?? this.text;
  }

  /**
   * Messages whose roles the template knows: the usual ones, and those that it names. `developer` is `system` in another word.
   *
   * @throws {EngineError} `InvalidArgument` for another role, and for one whose messages the template leaves out
   */
  known(messages: readonly ChatMessage[]): ChatMessage[] {
    const source = Object.values(this.#templates).join("");
    const names = (role: string) => [`'${role}'`, `"${role}"`].some((quoted) => source.includes(quoted));
    return messages.map((message, at) => {
      const role = message.role === "developer" && !names("developer") ? "system" : message.role;
      if ((USUAL.includes(role) || names(role)) && !this.#leavesOut(role, at === 0)) return { ...message, role };
      const found = message.role;
      const reason = `messages[${at}] has the role ${JSON.stringify(found)}, which the chat template does not know`;
      const expected = `a role that it writes out: one of ${USUAL.join(", ")}, or another one that it names`;
      const detail = { option: "messages", message: at, source: this.source, expected, found };
      throw new EngineError("InvalidArgument", `${reason}: expected ${expected}`, detail);
    });
  }

  /** Tried with a text that no filter changes. A template that refuses the try will refuse the messages, and say why. */
  #leavesOut(role: string, first: boolean): boolean {
    if (role === "user" || role === "assistant") return false;
    const key = `${first} ${role}`;
    let silent = this.#silent.get(key);
    if (silent === undefined) {
      const [one, other] = [
        { role, content: PROBE },
        { role: "user", content: "" },
      ];
      try {
        silent = !this.render(first ? [one, other] : [other, one]).includes(PROBE);
      } catch {
        silent = false;
      }
      this.#silent.set(key, silent);
    }
    return silent;
  }

  /** @throws {EngineError} `BadTemplate`; without it the first messages tell */
  compile(): void {
    try {
      for (const name of Object.keys(this.#templates)) this.#program(name);
    } catch (cause) {
      throw this.#failure(cause);
    }
  }

  render(messages: readonly ChatMessage[], options: RenderOptions = {}): string {
    return this.#render(messages, options, null).text;
  }

  /** Renders so that no text of messages, tools and documents can be read as a special token. */
  renderGuarded(messages: readonly ChatMessage[], options: RenderOptions, guard: Guard): Rendered {
    return this.#render(messages, options, guard);
  }

  #render(messages: readonly ChatMessage[], options: RenderOptions, guard: Guard | null): Rendered {
    const { addGenerationPrompt = true, tools = null, templateOptions = {}, now = new Date() } = options;
    try {
      const all: Record<string, unknown> = {
        ...this.#tokens,
        messages,
        tools,
        documents: null,
        add_generation_prompt: addGenerationPrompt,
        ...templateOptions,
      };
      // The other variables are the model's, or the application's own.
      const content = { messages: all.messages, tools: all.tools, documents: all.documents };
      const variables = guard ? { ...all, ...guard.mark(content) } : all;
      const text = render(this.#program(tools ? "tool_use" : "default"), variables, { now, guard });
      return guard ? guard.read(text) : { text, seams: [] };
    } catch (cause) {
      throw this.#failure(cause);
    }
  }

  #program(name: string): unknown {
    const source = this.#templates[name] ?? this.#templates.default;
    if (source === undefined) {
      throw new TemplateFailure(
        `none of its templates is called default, but ${Object.keys(this.#templates).join(", ")}`,
        undefined,
      );
    }
    let program = this.#programs.get(source);
    if (!program) {
      program = compile(source);
      this.#programs.set(source, program);
    }
    return program;
  }

  #failure(cause: unknown): EngineError {
    const line = cause instanceof TemplateFailure ? cause.line : undefined;
    const reason =
      cause instanceof RangeError || (cause as Error).cause instanceof RangeError
        ? "it nests too deeply or grows too large"
        : brief((cause as Error).message);
    const where = line === undefined ? "" : `, line ${line}`;
    return new EngineError(
      "BadTemplate",
      `chat template (${this.source})${where}: ${reason}`,
      { source: this.source, reason, ...(line === undefined ? {} : { line }) },
      { cause },
    );
  }
}

interface Tag {
  start: number;
  end: number;
  line: number;
  /** `%`, `{` or `#`. */
  kind: string;
}

/** The library's syntax tree, with the line of each tag as a comment before it. */
function compile(template: string): unknown {
  if (template.length > MAX_TEMPLATE) {
    throw new TemplateFailure(`it has ${template.length} characters; at most ${MAX_TEMPLATE} are allowed`, undefined);
  }
  if (new RegExp(`\\s{${MAX_TEMPLATE_SPACE + 1}}`).test(template)) {
    throw new TemplateFailure(`it has more than ${MAX_TEMPLATE_SPACE} spaces in a row`, undefined);
  }
  // Jinja2 reads every kind of line end as \n.
  const source = template.replace(/\r\n?/g, "\n");
  const tags = findTags(source);

  let tokens: { type: string; value: string }[];
  try {
    tokens = tokenize(source, { lstrip_blocks: true, trim_blocks: true });
  } catch (cause) {
    const line = tags.find((tag) => !readable(source.slice(tag.start, tag.end)))?.line;
    throw new TemplateFailure((cause as Error).message, line, cause);
  }

  // The library drops `generation` tags before it reads the others.
  const lines = tags.filter((tag) => tag.kind !== "#" && !isGeneration(source, tag)).map((tag) => tag.line);
  const opens = (token: { type: string }) => token.type === "OpenStatement" || token.type === "OpenExpression";
  const located = tokens.filter(opens).length === lines.length;
  const marked = tokens.flatMap((token) => {
    return located && opens(token) ? [{ type: "Comment", value: LINE_MARK + lines.shift() }, token] : [token];
  });
  let reached = 0;
  const watched = new Proxy(marked, {
    get(target, key, receiver) {
      if (typeof key === "string" && /^\d+$/.test(key)) reached = Math.max(reached, Number(key));
      return Reflect.get(target, key, receiver);
    },
  });
  try {
    return parse(watched as never);
  } catch (cause) {
    const mark = marked
      .slice(0, reached + 1)
      .findLast((token) => token.type === "Comment" && token.value.startsWith(LINE_MARK));
    const line = mark ? Number(mark.value.slice(LINE_MARK.length)) : undefined;
    throw new TemplateFailure(
      reached >= marked.length ? "it ends inside of a block" : (cause as Error).message,
      line,
      cause,
    );
  }
}

function readable(tag: string): boolean {
  try {
    tokenize(tag);
    return true;
  } catch {
    return false;
  }
}

function isGeneration(source: string, tag: Tag): boolean {
  return tag.kind === "%" && /^\{%-?\s*(?:end)?generation\s*-?%\}$/.test(source.slice(tag.start, tag.end));
}

/** Where each tag begins and ends, in order; an unclosed one reaches to the end. */
function findTags(source: string): Tag[] {
  const tags: Tag[] = [];
  const opening = /\{[%{#]/g;
  let line = 1;
  let counted = 0;
  for (let open = opening.exec(source); open; open = opening.exec(source)) {
    for (; counted < open.index; counted++) if (source[counted] === "\n") line++;
    const kind = open[0][1] as string;
    const end = endOfTag(source, open.index + 2, kind);
    tags.push({ start: open.index, end, line, kind });
    opening.lastIndex = end;
  }
  return tags;
}

function endOfTag(source: string, from: number, kind: string): number {
  if (kind === "#") {
    const end = source.indexOf("#}", from);
    return end < 0 ? source.length : end + 2;
  }
  let braces = 0;
  for (let at = from; at < source.length; at++) {
    const char = source[at];
    if (char === "'" || char === '"') {
      for (at++; at < source.length && source[at] !== char; at++) if (source[at] === "\\") at++;
    } else if (char === "{") braces++;
    else if (char === "}" && braces > 0) braces--;
    else if (source[at + 1] === "}" && (kind === "%" ? char === "%" : char === "}")) return at + 2;
  }
  return source.length;
}
