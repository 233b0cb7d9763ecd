/** A worker of Node, Deno or Bun as the host's platform. */

import type { Platform } from "../host/platform.ts";
import {
  cores,
  fetchFile,
  freeMemory,
  hasher,
  openStore,
  ownPort,
  paths,
  spawnSibling,
  surviveLostConnections,
  turn,
} from "./node.ts";

surviveLostConnections();

export const platform: Platform = {
  cores,
  fetchFile,
  freeMemory,
  hasher,
  openStore,
  ownPort,
  paths,
  spawnSibling,
  turn,
};
