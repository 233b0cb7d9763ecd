import { startWorker } from "./host/worker.ts";
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

startWorker({ cores, fetchFile, freeMemory, hasher, openStore, ownPort, paths, spawnSibling, turn });
