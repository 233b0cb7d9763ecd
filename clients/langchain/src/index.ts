export { ChatTernlight, type ChatTernlightCallOptions, type ChatTernlightFields } from "./chat.ts";
export { TernlightEmbeddings, type TernlightEmbeddingsFields } from "./embeddings.ts";
export { TernlightLLM, type TernlightLLMCallOptions, type TernlightLLMFields } from "./llm.ts";
