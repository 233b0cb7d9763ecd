/**
 * What only a model with a chat template needs: its template, and calls of tools. The bundles for pages have it in a file of its own,
 * a quarter of all their JavaScript, which a page loads with such a model.
 */

import type { FormatSpec } from "../options/response_format.ts";
import type { ChatMessage } from "../types/index.ts";
import { Guard } from "./guard.ts";
import { type ChatTemplate, openTemplate, type RenderOptions } from "./template.ts";
import type { FoundTemplate } from "./template_source.ts";
import type { Tokenizer } from "./tokenizer.ts";
import { callFormat, type FoundCalls, findCalls } from "./tools.ts";

export class Chat {
  readonly template: ChatTemplate;
  readonly #tokenizer: Tokenizer;
  #guard: Guard | null = null;

  constructor(found: FoundTemplate, tokenizer: Tokenizer) {
    this.template = openTemplate(found, tokenizer);
    this.#tokenizer = tokenizer;
  }

  /**
   * Messages as text.
   * @param written whether special tokens that messages write out become those tokens: then there are no seams
   */
  render(
    messages: readonly ChatMessage[],
    options: RenderOptions,
    written: boolean,
  ): { text: string; seams: readonly number[] | null } {
    const known = this.template.known(messages);
    if (written) return { text: this.template.render(known, options), seams: null };
    this.#guard ??= new Guard(this.#tokenizer.special);
    return this.template.renderGuarded(known, options, this.#guard);
  }

  /** The format of an answer that holds nothing but calls. */
  callFormat(tools: readonly unknown[], choice: "required" | { name: string }): FormatSpec {
    return callFormat(this.template.forTools, tools, choice, this.#tokenizer);
  }

  findCalls(answer: string, tools: readonly unknown[]): FoundCalls {
    return findCalls(answer, tools);
  }
}
