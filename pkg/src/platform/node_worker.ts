/** A worker of Node, Deno or Bun as the host's platform. */

import * as formats from "../constrain/formats.ts";
import type { Platform } from "../host/platform.ts";
import * as maps from "../options/activation_map.ts";
import * as signals from "../signals/signals.ts";
import * as split from "../split/split.ts";
import * as chats from "../text/chat.ts";
import * as gguf from "../text/from_gguf.ts";
import {
  cores,
  fetchFile,
  freeMemory,
  hasher,
  openStore,
  paths,
  processor,
  spawnSibling,
  spawnThread,
  surviveLostConnections,
  turn,
  wholeCores,
} from "./node.ts";
import { ownPort } from "./node_ports.ts";

surviveLostConnections();

export const platform: Platform = {
  chats: async () => chats,
  formats: async () => formats,
  cores,
  fetchFile,
  freeMemory,
  gguf: async () => gguf,
  hasher,
  openStore,
  maps: async () => maps,
  ownPort,
  paths,
  processor,
  signals: async () => signals,
  spawnSibling,
  spawnThread,
  split: async () => split,
  turn,
  wholeCores,
};
