import { cores, fetchFile, freeMemory, openStore, ownPort, spawnSibling, turn } from "./platform/browser.ts";
import { startWorker } from "./rpc/worker.ts";

// One by one: the whole module would bring `spawnEngine`, and with it the worker's own address, into the worker.
startWorker({ cores, fetchFile, freeMemory, openStore, ownPort, spawnSibling, turn });
