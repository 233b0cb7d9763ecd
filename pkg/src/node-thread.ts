import { ownPort } from "./platform/node_ports.ts";
import { builds } from "./wasm/builds.ts";
import { isJoin, work } from "./wasm/threads.ts";

const port = ownPort();
port.onmessage = (message) => {
  if (isJoin(message)) work(message, port, builds);
};
