/** Between texts and token ids, in the dialects of llama-server (`content`, `tokens`) and vLLM (`prompt`, `messages`). */

import { rendering } from "../../openai/ask.ts";
import { chatOf, readChat } from "../../openai/chat.ts";
import { faulty, invalid } from "../../openai/errors.ts";
import type { Fields } from "../../openai/sampling.ts";
import { check, type Schema } from "../../openai/schema.ts";
import { detokenizing, tokenizing } from "../../openai/tokens.ts";
import type { ChatMessage, RenderOptions } from "../../types/index.ts";
import type { Core } from "../core.ts";
import type { App } from "../env.ts";
import type { Work } from "../models.ts";

/** UTF-16 units of one text: answers wait while it is taken apart. */
const MAX_TEXT = 256 * 1024;

export function textRoutes(app: App, core: Core): void {
  const read = async (request: Request, schema: Schema) => {
    const body = await core.body(request);
    const fault = check(schema, body);
    if (fault) throw faulty(fault);
    return body as Fields;
  };
  const named = (fields: Fields) => (fields.model as string | null) ?? core.models.first.name;

  app.post("/tokenize", async (c) => {
    const fields = await read(c.req.raw, tokenizing);
    return core.work(c.req.raw, c.get("entry"), named(fields), "content", async (work) => ({
      json: await tokenized(fields, work),
    }));
  });
  app.post("/detokenize", async (c) => {
    const fields = await read(c.req.raw, detokenizing);
    return core.work(c.req.raw, c.get("entry"), named(fields), "tokens", async ({ model }) => {
      const text = await model.detokenize(fields.tokens as number[]);
      return { json: { content: text, prompt: text } };
    });
  });
  app.post("/apply-template", async (c) => {
    const fields = await read(c.req.raw, tokenizing);
    return core.work(c.req.raw, c.get("entry"), named(fields), "messages", async (work) => {
      return { json: { prompt: await work.model.renderChat(...chatIn(fields, work)) } };
    });
  });
  app.get("/tokenizer_info", (c) => {
    const name = c.req.query("model") ?? core.models.first.name;
    return core.work(c.req.raw, c.get("entry"), name, null, async ({ model }) => {
      const { specialTokens, template } = await model.tokenizerInfo();
      const {
        bos_token = null,
        eos_token = null,
        pad_token = null,
        unk_token = null,
      } = specialTokens as Record<string, string>;
      const { vocab, contextLength } = model.info;
      const info = { bos_token, eos_token, pad_token, unk_token, chat_template: template };
      return { json: { ...info, model_max_length: contextLength, vocab_size: vocab } };
    });
  });
}

async function tokenized(fields: Fields, work: Work) {
  const { model, tokens } = work;
  const { content, prompt, messages } = fields as Record<string, string | null>;
  const text = content ?? prompt ?? null;
  if (text === null && !messages) throw invalid("content", "content, prompt or messages must be given");
  if ((text?.length ?? 0) > MAX_TEXT) {
    const field = content == null ? "prompt" : "content";
    throw invalid(field, `${field} may have ${MAX_TEXT} characters, not ${text!.length}: send a longer text in parts`);
  }
  // llama-server adds nothing where it is not asked to, vLLM does.
  const addSpecial = (fields.add_special ?? fields.add_special_tokens ?? content === undefined) as boolean;
  // Special tokens that a message writes out are text, as in a chat.
  const ids = await (text === null ? model.tokenize(...chatIn(fields, work)) : model.tokenize(text, { addSpecial }));
  const wanted = fields.with_pieces === true || fields.return_token_strs === true;
  if (wanted) await tokens.learn(ids);
  const pieces = ids.map((id) => ({ id, piece: wanted ? pieceOf(tokens.of(id)) : "" }));
  return {
    tokens: fields.with_pieces === true ? pieces : ids,
    count: ids.length,
    max_model_len: model.info.contextLength,
    ...(fields.return_token_strs === true ? { token_strs: ids.map((id) => tokens.of(id).text) } : {}),
  };
}

/** llama-server shows a piece that is no whole character by its bytes. */
const pieceOf = ({ text, bytes }: { text: string; bytes: number[] }) => (text.startsWith("bytes:") ? bytes : text);

function chatIn(fields: Fields, { name }: Work): [ChatMessage[], RenderOptions] {
  // Messages are checked as a chat's are.
  readChat({ ...fields, model: name }, -1);
  const [messages, more] = rendering(chatOf(fields));
  return [messages, { ...more, addGenerationPrompt: fields.add_generation_prompt !== false }];
}
