import { startThread } from "./host/thread.ts";
import { ownPort } from "./platform/node_ports.ts";

startThread(ownPort());
