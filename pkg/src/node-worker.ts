import { startWorker } from "./host/worker.ts";
import { platform } from "./platform/node_worker.ts";

startWorker(platform);
