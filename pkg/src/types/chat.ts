/** Chats: messages and tools. */

import type { GenerateOptions } from "./generate.ts";
import type { ToolChoice } from "./tools.ts";

export interface ChatMessage {
  role: "system" | "user" | "assistant" | "tool" | (string & {});
  /** null where an assistant's message is `tool_calls` alone, in the templates that know this. */
  content: string | null;
  [key: string]: unknown;
}

export interface TemplateOptions {
  /** As in `chat`. @default none */
  tools?: readonly unknown[] | undefined;
  /** As in `chat`. @default none */
  templateOptions?: Readonly<Record<string, unknown>> | undefined;
  /** As in `chat`. @default false */
  parseSpecialTokens?: boolean | undefined;
  /** Ends with the words that begin the model's turn. @default true */
  addGenerationPrompt?: boolean | undefined;
}

/** Messages as a chat template writes them. */
export interface RenderedChat {
  text: string;
  /** The ids that `chat` would feed. */
  tokens: number[];
}

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
