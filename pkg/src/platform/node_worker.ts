/** A worker of Node, Deno or Bun as the host's platform. */

import * as formats from "../constrain/formats.ts";
import type { Platform } from "../host/platform.ts";
import * as signals from "../signals/signals.ts";
import * as chats from "../text/chat.ts";
import {
  cores,
  fetchFile,
  freeMemory,
  hasher,
  openStore,
  ownPort,
  paths,
  processor,
  spawnSibling,
  surviveLostConnections,
  turn,
} from "./node.ts";

surviveLostConnections();

export const platform: Platform = {
  chats: async () => chats,
  formats: async () => formats,
  cores,
  fetchFile,
  freeMemory,
  hasher,
  openStore,
  ownPort,
  paths,
  processor,
  signals: async () => signals,
  spawnSibling,
  turn,
};
