export { onHub } from "./source/hub.ts";
