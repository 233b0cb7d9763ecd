/** Between texts and token ids. */

import type { Handler } from "../call.ts";

export const tokenize: Handler<"tokenize"> = ({ model }, { text, addSpecial }) =>
  model.text.tokenizer.encode(text, { addSpecial });

export const detokenize: Handler<"detokenize"> = ({ model }, { ids, special }) =>
  model.text.tokenizer.decode(ids, { special });
