/** Between texts and token ids. */

import type { Handler } from "../call.ts";
import { renderChat as render } from "../prompt.ts";

export const tokenize: Handler<"tokenize"> = ({ model }, { text, addSpecial }) =>
  model.text.tokenizer.encode(text, { addSpecial });

export const detokenize: Handler<"detokenize"> = ({ model }, { ids, special }) =>
  model.text.tokenizer.decode(ids, { special });

export const renderChat: Handler<"renderChat"> = ({ model }, { prompt, addGenerationPrompt }) => {
  const { text, seams } = render(model.text, prompt, addGenerationPrompt);
  return { text, ids: model.text.tokenizer.encode(text, { addSpecial: false, seams }) };
};

export const tokenizerInfo: Handler<"tokenizerInfo"> = ({ model: { text } }) => ({
  specialTokens: text.tokenizerOrNull?.specialTokens ?? {},
  template: text.chatOrNull?.template.text ?? null,
});

export const tokenBytes: Handler<"tokenBytes"> = ({ model: { text } }, { ids }) =>
  ids.map((id) => {
    const bytes = text.tokenizer.bytes(id, true);
    return { bytes, special: bytes.length > 0 && text.tokenizer.bytes(id, false).length === 0 };
  });
