/** What the host needs of the runtime that it runs in. */

import type { OpenStore } from "../cache/store.ts";
import type { Port, WorkerPort } from "../rpc/port.ts";
import type { Hasher } from "../source/sha256.ts";
import type { Paths } from "../source/source.ts";
import type { Features } from "../wasm/features.ts";

/** A build that its owner has compiled: edge workers may not. */
export interface Given {
  module: WebAssembly.Module;
  features: Features;
  /** What formats need. */
  constrain?: WebAssembly.Module;
}

/** What a worker needs of its runtime. `browser.ts` and `node.ts` both offer it, and the owner's `spawnEngine()`. */
export interface Platform {
  /** The worker's own end. */
  ownPort(): Port;
  /** Starts another worker from the same file. */
  spawnSibling(): WorkerPort;
  /** Reads a file of this package. */
  fetchFile(url: URL): Promise<Response>;
  /** Threads that can run at once. */
  cores(): number;
  /** Bytes that a model could take; null where the runtime does not tell. */
  freeMemory(): number | null;
  /** Resolves when the messages that wait by now have been read. */
  turn(): Promise<void>;
  /** The file system, where there is one. */
  paths?: Paths;
  /** The one build there is, where none can be chosen and compiled. */
  given?: Given;
  /** Where what comes from servers can be kept. */
  openStore?: OpenStore | undefined;
  /** SHA-256, where the runtime has one that takes pieces. */
  hasher?(): Hasher;
}
