/** Tools that an answer may call. */

/**
 * `auto` leaves it to the model, `none` shows the template no tools, `required` allows nothing but calls, a name one call of it. The last
 * form is OpenAI's.
 */
export type ToolChoice =
  | "auto"
  | "none"
  | "required"
  | { name: string }
  | { type?: string; function: { name: string } };

/** A call in an answer. */
export interface ToolCall {
  /** Where the model gave one. */
  id?: string;
  name: string;
  arguments: Record<string, unknown>;
}

/** A text that was meant as a call and is none. */
export interface ToolError {
  /** As the model wrote it. */
  text: string;
  /** What is wrong with it. */
  reason: string;
}
