/** Chats: messages and tools. */

import type { GenerateOptions } from "./generate.ts";
import type { ToolChoice } from "./tools.ts";

/** A part of a message, in OpenAI's shape. Parts of other types than `text` are refused. */
export interface ContentPart {
  type: "text" | (string & {});
  text?: string;
  [key: string]: unknown;
}

export interface ChatMessage {
  /**
   * One that the model's template knows. `developer` is `system` for a template that does not know it; any other role that a template
   * does not name is refused.
   */
  role: "system" | "user" | "assistant" | "tool" | (string & {});
  /**
   * A text, or parts of text, which are joined by line feeds; null where an assistant's message is `tool_calls` alone, in the templates
   * that know this.
   */
  content: string | readonly ContentPart[] | null;
  [key: string]: unknown;
}

export interface RenderOptions {
  /** As of `chat`. @default none */
  tools?: readonly unknown[] | undefined;
  /** As of `chat`: `none` shows the template no tools. @default "auto" */
  toolChoice?: ToolChoice | undefined;
  /** As of `chat`. @default none */
  templateOptions?: Readonly<Record<string, unknown>> | undefined;
  /** As of `chat`. @default false */
  parseSpecialTokens?: boolean | undefined;
  /** Ends with what begins the model's turn. @default true */
  addGenerationPrompt?: boolean | undefined;
}

export interface CountOptions extends RenderOptions {
  /** Adds what the tokenizer adds to a text (BOS). Has no effect on messages. @default true */
  addSpecial?: boolean | undefined;
}

export type TokenizeOptions = CountOptions;

export interface ChatOptions extends GenerateOptions {
  /**
   * Tools in the shape that the model's template expects: `{ type: "function", function: { name, description, parameters } }` for most.
   * The calls of the answer are `finished.toolCalls`.
   * @default none
   */
  tools?: readonly unknown[] | undefined;
  /**
   * Whether the answer may or must be calls. With `"required"` or a name, their arguments follow the tool's `parameters`; that needs a
   * template which spells calls as Hermes, Qwen, Mistral or Llama 3 do.
   * @default "auto"
   */
  toolChoice?: ToolChoice | undefined;
  /** Further variables for the template. @default none */
  templateOptions?: Readonly<Record<string, unknown>> | undefined;
  /**
   * Whether special tokens that messages, tools and documents write out become those tokens. They are text otherwise: a message that
   * contains `<|im_end|>` cannot end its turn.
   * @default false
   */
  parseSpecialTokens?: boolean | undefined;
}
