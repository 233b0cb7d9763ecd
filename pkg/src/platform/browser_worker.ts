/** A browser's worker as the host's platform. Only workers write to the origin's storage. */

import { openStore } from "../cache/opfs_write.ts";
import type { Platform } from "../host/platform.ts";
// Imported one by one: the whole module would bring `spawnEngine`, and with it the worker's own address, into the worker.
import { cores, fetchFile, freeMemory, ownPort, spawnSibling, turn } from "./browser.ts";

export const platform: Platform = { cores, fetchFile, freeMemory, openStore, ownPort, spawnSibling, turn, warms: true };
