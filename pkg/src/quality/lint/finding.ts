/** What a check finds in a model's file. */

export type Rule =
  | "pre-tokenizer"
  | "template-eos"
  | "generation-prompt"
  | "eos-unwritten"
  | "bos-twice"
  | "head"
  | "scales"
  | "one-code"
  | "code-3"
  | "i2s-order"
  | "rope"
  | "dense-ternary";

export interface Finding {
  rule: Rule;
  /** `error`: the model writes nonsense or does not load, here or elsewhere. `warning`: it may, or wastes bytes. */
  level: "error" | "warning";
  /** What is wrong, with what was expected and what is there. */
  message: string;
  /** The way out. */
  advice: string;
  /** Whether `fix` mends it. */
  fixable: boolean;
  tensor?: string;
  /** A key of the metadata, or a field of a configuration file. */
  key?: string;
}

/** A rule that could not be looked at, and why. */
export interface Unchecked {
  rule: Rule;
  reason: string;
}
