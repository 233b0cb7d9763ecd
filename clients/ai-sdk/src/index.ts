export { TernlightChatTransport, type TernlightChatTransportOptions } from "./chat_transport.ts";
export type { TernlightEmbeddingModel } from "./embedding_model.ts";
export type { TernlightLanguageModel } from "./language_model.ts";
export { createTernlight, type Ternlight, type TernlightSettings, ternlight } from "./provider.ts";
export type { TernlightProviderOptions } from "./settings.ts";
