export { type Availability, type AvailabilityTools, availability } from "./integration/availability.ts";
export type { TextOrCall } from "./integration/call_reader.ts";
export { randomId } from "./integration/ids.ts";
export {
  type LazyAvailability,
  type LazyModel,
  type LoadCall,
  type LoadTools,
  lazyModel,
  type SourceOrModel,
} from "./integration/lazy_model.ts";
export { type AnswerPart, type ChatPartsOptions, chatParts } from "./integration/parts.ts";
export { type LoadHooks, type LoadState, type LoadStatus, SharedLoad, sharedLoad } from "./integration/shared_load.ts";
export { eitherSignal } from "./integration/signals.ts";
