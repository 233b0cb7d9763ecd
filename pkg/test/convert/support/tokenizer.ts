import { fromGguf } from "../../../src/text/from_gguf.ts";
import { Tokenizer } from "../../../src/text/tokenizer.ts";
import { parseGguf } from "../../text/support/gguf_file.ts";

/** The tokenizer that a GGUF describes. */
export function loadTokenizer(bytes: Uint8Array): Tokenizer {
  const { json, config, warnings } = fromGguf(parseGguf(bytes));
  return new Tokenizer(json, config, warnings);
}
