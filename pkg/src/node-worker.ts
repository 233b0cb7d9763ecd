import * as platform from "./platform/node.ts";
import { startWorker } from "./rpc/worker.ts";

startWorker(platform);
