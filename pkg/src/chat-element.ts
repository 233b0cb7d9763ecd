import { ChatElement } from "./chat_element/element.ts";
import type { Engine } from "./chat_element/loading.ts";
import type { Finished, Model, ModelSource } from "./types/index.ts";

export type { ChatState } from "./chat_element/element.ts";
export type { ChatStrings } from "./chat_element/strings.ts";

/** The events of the element. They do not bubble. */
export interface TernlightChatEvents {
  /** The model is loaded. */
  ready: CustomEvent<{ model: Model }>;
  /** An answer has ended. */
  answer: CustomEvent<{ text: string; finished: Finished }>;
  /** A load or an answer has failed. */
  error: CustomEvent<{ error: unknown }>;
}

/** `<ternlight-chat src="…" system="…">`. The engine is loaded with the first model. */
// biome-ignore lint/suspicious/noUnsafeDeclarationMerging: it declares a method that the base has, and nothing to initialise
export class TernlightChat extends ChatElement {
  protected override engine(): Promise<Engine> {
    return import("./index.ts");
  }

  protected override async demo(): Promise<ModelSource> {
    return (await import("./demo.ts")).default;
  }
}

/** With what each event tells. */
export interface TernlightChat {
  addEventListener<Name extends keyof TernlightChatEvents>(
    type: Name,
    listener: (this: TernlightChat, event: TernlightChatEvents[Name]) => unknown,
    options?: boolean | AddEventListenerOptions,
  ): void;
  addEventListener<Name extends keyof HTMLElementEventMap>(
    type: Name,
    listener: (this: HTMLElement, event: HTMLElementEventMap[Name]) => unknown,
    options?: boolean | AddEventListenerOptions,
  ): void;
  addEventListener(
    type: string,
    listener: EventListenerOrEventListenerObject,
    options?: boolean | AddEventListenerOptions,
  ): void;
}

declare global {
  interface HTMLElementTagNameMap {
    "ternlight-chat": TernlightChat;
  }
}

if (typeof customElements !== "undefined" && !customElements.get("ternlight-chat"))
  customElements.define("ternlight-chat", TernlightChat);
