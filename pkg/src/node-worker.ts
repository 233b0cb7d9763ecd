import {
  cores,
  fetchFile,
  freeMemory,
  hasher,
  openStore,
  ownPort,
  paths,
  spawnSibling,
  turn,
} from "./platform/node.ts";
import { startWorker } from "./rpc/worker.ts";

startWorker({ cores, fetchFile, freeMemory, hasher, openStore, ownPort, paths, spawnSibling, turn });
