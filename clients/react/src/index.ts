export { type ChatSession, type ChatSessionOptions, useChatSession } from "./use_chat_session.ts";
export { type UseGeneration, useGeneration } from "./use_generation.ts";
export {
  retryTernlight,
  type TernlightStatus,
  type UseTernlight,
  type UseTernlightOptions,
  useTernlight,
} from "./use_ternlight.ts";
