import * as platform from "./platform/browser.ts";
import { startWorker } from "./rpc/worker.ts";

startWorker(platform);
