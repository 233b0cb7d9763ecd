import { startWorker } from "./host/worker.ts";
import { platform } from "./platform/browser_worker.ts";

startWorker(platform);
