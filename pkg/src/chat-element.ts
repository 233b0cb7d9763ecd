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
export class TernlightChat extends ChatElement {
  protected override engine(): Promise<Engine> {
    return import("./index.ts");
  }

  protected override async demo(): Promise<ModelSource> {
    return (await import("./demo.ts")).default;
  }
}

declare global {
  interface HTMLElementTagNameMap {
    "ternlight-chat": TernlightChat;
  }
}

if (typeof customElements !== "undefined" && !customElements.get("ternlight-chat"))
  customElements.define("ternlight-chat", TernlightChat);
