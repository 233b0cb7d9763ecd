/** Rules about tokenizer and template. A fix is a change of the metadata. */

import type { RawPair } from "../../convert/header.ts";
import type { Text } from "../../host/text.ts";
import { findPreTokenizer } from "../../text/pretokenizers.ts";
import { ChatTemplate } from "../../text/template.ts";
import { EngineError } from "../../types/errors.ts";
import type { ChatMessage } from "../../types/index.ts";
import type { Gguf } from "../gguf.ts";
import { pair } from "../new_gguf.ts";
import type { Finding, Rule, Unchecked } from "./finding.ts";
import type { Checked } from "./model.ts";
import { judge } from "./pre.ts";

export interface TextFinding extends Finding {
  /** What to write in the header. */
  pairs?: RawPair[];
  /** The mended template. */
  template?: string;
}

const PRE = "tokenizer.ggml.pre";
const KIND = "tokenizer.ggml.model";
const TEMPLATE = "tokenizer.chat_template";
const ADD_BOS = "tokenizer.ggml.add_bos_token";

export interface TextFindings {
  findings: TextFinding[];
  unchecked: Unchecked[];
}

const NO_TOKENIZER = "the model has no tokenizer";

export function checkText(checked: Checked): TextFindings {
  const { gguf, text, template, textError } = checked;
  const pre = gguf ? preOrWhyNot(gguf) : [];
  const known = pre.some(({ key }) => key === textError?.detail.key);
  const broken: TextFinding[] = textError && !known ? [unreadable(textError.message, textError.detail.key)] : [];
  const unchecked: Unchecked[] = [];
  if (!gguf) unchecked.push({ rule: "pre-tokenizer", reason: "only of GGUF: tokenizer.json says how texts are cut" });
  else if (gguf.get(KIND) === undefined) unchecked.push({ rule: "pre-tokenizer", reason: NO_TOKENIZER });
  const findings = [...pre, ...broken];
  if (!text?.tokenizerOrNull || template === null) {
    const none = text?.tokenizerOrNull ? "the model has no chat template" : NO_TOKENIZER;
    return { findings, unchecked: [...unchecked, ...notLookedAt(0, textError?.message ?? none)] };
  }
  const more = checkTemplate(checked, text, template);
  return { findings: [...findings, ...more.findings], unchecked: [...unchecked, ...more.unchecked] };
}

/** The rules about templates, from one on. */
const notLookedAt = (from: number, reason: string): Unchecked[] =>
  TEMPLATE_RULES.slice(from).map(([rule]) => ({ rule, reason }));

const unreadable = (message: string, key: string | undefined): TextFinding => ({
  rule: "pre-tokenizer",
  level: "error",
  ...(key === undefined ? {} : { key }),
  message,
  advice: "convert the model anew, with its tokenizer.json beside it",
  fixable: false,
});

function preOrWhyNot(gguf: Gguf): TextFinding[] {
  try {
    return checkPre(gguf);
  } catch (error) {
    if (!(error instanceof EngineError)) throw error;
    return [unreadable(error.message, error.detail.key)];
  }
}

/** The name of the way in which a text is cut before merging. */
function checkPre(gguf: Gguf): TextFinding[] {
  if (gguf.get(KIND) !== "gpt2") return [];
  const tokens = gguf.strings("tokenizer.ggml.tokens");
  if (!tokens) return [];
  const types = gguf.numbers("tokenizer.ggml.token_type");
  const normal = tokens.filter((_, id) => !types || types[id] === 1);
  const said = gguf.get(PRE);
  const missing = said === undefined || said === "";
  const taken = findPreTokenizer(missing ? assumed(gguf, tokens) : String(said));
  const { name, wrong, unreachable, looked, best } = judge(normal, taken);
  const rule = "pre-tokenizer" as const;
  const fix = { level: "error" as const, key: PRE, pairs: [pair({ key: PRE, value: name })], fixable: true };
  const advice = `set ${PRE} to "${name}", which --fix writes`;
  if (missing) {
    const message = `${PRE} is missing: programs split text as they like, some as "default"; expected "${name}" by the vocabulary`;
    return [{ rule, message, advice, ...fix }];
  }
  if (!taken) {
    const message = `${PRE} is ${JSON.stringify(said)}, which is not known; expected "${name}" by the vocabulary`;
    return [{ rule, message, advice, ...fix }];
  }
  if (!wrong) return [];
  const message = `${PRE} is "${said}", which cuts ${unreachable} of ${looked} tokens that "${name}" leaves whole but for ${best}`;
  return [{ rule, message, advice, ...fix }];
}

/** What a load takes where the file has no name. */
function assumed(gguf: Gguf, tokens: readonly string[]): string {
  const bos = gguf.get("tokenizer.ggml.bos_token_id");
  const llama3 = tokens.length === 128256 || tokens[Number(bos ?? -1)] === "<|begin_of_text|>";
  return llama3 ? "llama-bpe" : "";
}

const [ASKED, ANSWERED, NEXT] = ["7391a", "7391b", "7391c"];
const QUESTION: ChatMessage[] = [{ role: "user", content: ASKED! }];
const ANSWER: ChatMessage[] = [...QUESTION, { role: "assistant", content: ANSWERED! }];
const FURTHER: ChatMessage[] = [...ANSWER, { role: "user", content: NEXT! }];

/** What a template makes of short conversations. */
interface Rendered {
  /** A question, with and without the words that begin the answer. */
  asked: string;
  plain: string;
  /** With an answer behind it. */
  answered: string;
  /** What follows an answer where the conversation goes on, and where it ends. */
  behind: string;
}

function rendered(template: string, tokens: Readonly<Record<string, string>>): Rendered {
  const own = new ChatTemplate("the file", { default: template }, tokens);
  const render = (messages: ChatMessage[], addGenerationPrompt: boolean) =>
    own.render(messages, { addGenerationPrompt, now: new Date(0) });
  const answered = render(ANSWER, false);
  const further = render(FURTHER, false);
  const after = (text: string) => text.slice(text.indexOf(ANSWERED!) + ANSWERED!.length);
  return {
    asked: render(QUESTION, true),
    plain: render(QUESTION, false),
    answered,
    behind: `${after(answered)}\n${after(further)}`,
  };
}

type TemplateRule = (checked: Checked, text: Text, template: string, texts: Rendered) => TextFinding[];

const TEMPLATE_RULES: readonly (readonly [Rule, TemplateRule])[] = [
  ["template-eos", endsEarly],
  ["generation-prompt", lacksPrompt],
  ["eos-unwritten", unwritten],
  ["bos-twice", twice],
];

/** Rule by rule; a rule sees the template as those before it have mended it. */
function checkTemplate(checked: Checked, text: Text, template: string): TextFindings {
  const findings: TextFinding[] = [];
  let current = template;
  let done = 0;
  try {
    for (const [, look] of TEMPLATE_RULES) {
      const more = look(checked, text, current, rendered(current, text.tokenizer.specialTokens));
      current = more.findLast((one) => one.template !== undefined)?.template ?? current;
      findings.push(...more);
      done++;
    }
  } catch (error) {
    const [rule, fails] = ["generation-prompt" as const, "the chat template fails on a question and an answer"];
    const message = `${fails}: ${(error as Error).message}`;
    const advice = "give another one by the option chatTemplate";
    findings.push({ rule, level: "warning", key: TEMPLATE, message, advice, fixable: false });
    return { findings, unchecked: notLookedAt(done, fails).filter((one) => one.rule !== rule) };
  }
  return { findings, unchecked: [] };
}

const mended = (checked: Checked, template: string | null): Pick<TextFinding, "fixable" | "pairs" | "template"> =>
  checked.gguf && template !== null
    ? { fixable: true, pairs: [pair({ key: TEMPLATE, value: template })], template }
    : { fixable: false };

/** An end where the answer should begin. */
function endsEarly(checked: Checked, text: Text, template: string, { asked, answered }: Rendered): TextFinding[] {
  const tokenizer = text.tokenizer;
  const end = tokenizer.ends.find((one) => asked.trimEnd().endsWith(one.text));
  if (!end || answered.startsWith(asked)) return [];
  const without = template.replace(/\{\{-?\s*eos_token\s*-?\}\}\s*(\{%-?\s*endif\s*-?%\}\s*)?$/, "$1");
  const literal = template.replaceAll(end.text, "");
  const works = [without, literal].find((tried) => {
    try {
      const again = rendered(tried, tokenizer.specialTokens);
      return tried !== template && !again.asked.trimEnd().endsWith(end.text) && again.asked.includes(ASKED!);
    } catch {
      return false;
    }
  });
  return [
    {
      rule: "template-eos",
      level: "error",
      key: TEMPLATE,
      message: `the chat template ends in ${end.text} where the answer should begin`,
      advice: works
        ? "take the token away from the template's end, as --fix does"
        : "give another template by the option chatTemplate",
      ...mended(checked, works ?? null),
    },
  ];
}

/** The words that begin an answer, which the template writes before a given one and not before one to come. */
function lacksPrompt(checked: Checked, text: Text, template: string, texts: Rendered): TextFinding[] {
  const { asked, plain, answered } = texts;
  if (asked !== plain || !answered.startsWith(asked)) return [];
  const header = answered.slice(asked.length, answered.indexOf(ANSWERED!, asked.length));
  if (header.trim() === "") return [];
  const longer = `${template}{% if add_generation_prompt %}{{ ${JSON.stringify(header)} }}{% endif %}`;
  let works = false;
  try {
    works = rendered(longer, text.tokenizer.specialTokens).asked === asked + header;
  } catch {
    // It stays as it is.
  }
  return [
    {
      rule: "generation-prompt",
      level: "error",
      key: TEMPLATE,
      message: `the chat template lacks a generation prompt: before an answer it writes ${JSON.stringify(header)}, but not where add_generation_prompt asks for it`,
      advice: works
        ? "let the template write it where add_generation_prompt is true, as --fix does"
        : "give another template by the option chatTemplate",
      ...mended(checked, works ? longer : null),
    },
  ];
}

/** An end token that no chat shows to the model. */
function unwritten({ gguf }: Checked, text: Text, _template: string, { behind }: Rendered): TextFinding[] {
  const tokenizer = text.tokenizer;
  const eos = tokenizer.eos;
  if (!eos || behind.includes(eos.text)) return [];
  const eot = tokenizer.specialTokens.eot_token;
  if (eot && behind.includes(eot)) return [];
  const written = tokenizer.special.filter((token) => behind.trimStart().startsWith(token));
  const turn = written.sort((a, b) => b.length - a.length)[0];
  const id = turn === undefined ? undefined : tokenizer.encode(turn, { addSpecial: false });
  const usable = gguf !== null && id?.length === 1;
  const key = "tokenizer.ggml.eot_token_id";
  return [
    {
      rule: "eos-unwritten",
      level: turn && tokenizer.ends.some((end) => end.text === turn) ? "warning" : "error",
      key: "tokenizer.ggml.eos_token_id",
      message: `EOS is ${eos.text}, which the chat template never writes${turn ? `; behind an answer it writes ${turn}` : " behind an answer"}`,
      advice: usable ? `name ${turn} in ${key}, as --fix does` : "give the text that ends a turn by the option stop",
      fixable: usable,
      ...(usable ? { pairs: [pair({ key, value: id![0]! })] } : {}),
    },
  ];
}

/** BOS before BOS. */
function twice(checked: Checked, text: Text, template: string, { asked }: Rendered): TextFinding[] {
  const { bos, addsBos, specialTokens } = text.tokenizer;
  if (!bos || !asked.startsWith(bos.text)) return [];
  if (asked.slice(bos.text.length).trimStart().startsWith(bos.text)) {
    const once = template.replace(/\{\{-?\s*bos_token\s*-?\}\}/, "");
    let works = false;
    try {
      const again = rendered(once, specialTokens).asked;
      works = again.startsWith(bos.text) && !again.slice(bos.text.length).trimStart().startsWith(bos.text);
    } catch {
      // It stays as it is.
    }
    const advice = works ? "write it once, as --fix does" : "give another template by the option chatTemplate";
    const message = `the chat template writes BOS (${bos.text}) twice`;
    return [
      { rule: "bos-twice", level: "error", key: TEMPLATE, message, advice, ...mended(checked, works ? once : null) },
    ];
  }
  // Where a file leaves it open, programs know that a template may write it.
  const said = checked.gguf?.get(ADD_BOS) === true;
  if (!addsBos || !said) return [];
  return [
    {
      rule: "bos-twice",
      level: "warning",
      key: ADD_BOS,
      message: `${ADD_BOS} is true and the chat template writes BOS (${bos.text}) too: programs that tokenize what it renders add it twice`,
      advice: `set ${ADD_BOS} to false, as --fix does; texts without the template then begin without BOS`,
      fixable: true,
      pairs: [pair({ key: ADD_BOS, value: false })],
    },
  ];
}
