import { openStore } from "./cache/opfs_write.ts";
import { startWorker } from "./host/worker.ts";
import { cores, fetchFile, freeMemory, ownPort, spawnSibling, turn } from "./platform/browser.ts";

// One by one: the whole module would bring `spawnEngine`, and with it the worker's own address, into the worker.
startWorker({ cores, fetchFile, freeMemory, openStore, ownPort, spawnSibling, turn });
