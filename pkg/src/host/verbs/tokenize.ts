/** Between texts and token ids. */

import type { Handler } from "../call.ts";
import { encodeChat, renderedChat } from "../prompt.ts";

export const applyChatTemplate: Handler<"applyChatTemplate"> = ({ model }, { prompt, addGenerationPrompt }) => {
  const rendered = renderedChat(model.text, prompt, false, addGenerationPrompt);
  return { text: rendered.text, tokens: encodeChat(model.text, model.info.contextLength, rendered) };
};

export const tokenizerInfo: Handler<"tokenizerInfo"> = ({ model: { text } }) => ({
  specialTokens: text.tokenizerOrNull?.specialTokens ?? {},
  template: text.templateOrNull?.text ?? null,
});

export const tokenBytes: Handler<"tokenBytes"> = ({ model: { text } }, { ids }) =>
  ids.map((id) => {
    const bytes = text.tokenizer.bytes(id, true);
    return { bytes, special: bytes.length > 0 && text.tokenizer.bytes(id, false).length === 0 };
  });

export const tokenize: Handler<"tokenize"> = ({ model }, { text, addSpecial }) =>
  model.text.tokenizer.encode(text, { addSpecial });

export const detokenize: Handler<"detokenize"> = ({ model }, { ids, special }) =>
  model.text.tokenizer.decode(ids, { special });
