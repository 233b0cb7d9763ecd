/** What the host needs of the runtime that it runs in. */

import type { OpenStore } from "../cache/store.ts";
import type * as formats from "../constrain/formats.ts";
import type * as maps from "../options/activation_map.ts";
import type { Port, WorkerPort } from "../rpc/port.ts";
import type * as signals from "../signals/signals.ts";
import type { Hasher } from "../source/sha256.ts";
import type { Paths } from "../source/source.ts";
import type * as split from "../split/split.ts";
import type * as chats from "../text/chat.ts";
import type * as gguf from "../text/from_gguf.ts";
import type { Features } from "../wasm/features.ts";
import type { FetchFile } from "../wasm/load.ts";

/** A build that the caller has compiled, because edge workers may not compile. */
export interface Given {
  module: WebAssembly.Module;
  features: Features;
  /** What response formats need. */
  constrain?: WebAssembly.Module;
}

/** What a host needs from its runtime. The files of platform/ provide it. */
export interface Platform {
  /** The worker's own end. */
  ownPort(): Port;
  /** Starts another worker from the same file. */
  spawnSibling(): WorkerPort;
  /** Starts a worker that becomes a thread, where it has a file of its own. */
  spawnThread?(): WorkerPort;
  /** Reads a file of this package. */
  fetchFile: FetchFile;
  /** What only models with a chat template need, which a page loads with the first of them. */
  chats(): Promise<typeof chats>;
  /** What only models with a tokenizer in a GGUF's header need. */
  gguf(): Promise<typeof gguf>;
  /** What only answers with a format need, which a page loads with the first of them. */
  formats(): Promise<typeof formats>;
  /** What only loads with a map of activations need. */
  maps(): Promise<typeof maps>;
  /** What only models whose health or numbers somebody reads need. */
  signals(): Promise<typeof signals>;
  /** What only models that are larger than one memory need; absent in runtimes that have one instance. */
  split?(): Promise<typeof split>;
  /** Threads that can run at once. */
  cores(): number;
  /** Cores that a thread each may have, without hyper-threads; null, or absent, where the runtime cannot tell. */
  wholeCores?(): number | null;
  /** What tells this machine's processor and this runtime from others, as far as they say; absent where clocks stand still. */
  processor?(): string;
  /** Free bytes; null where the runtime does not tell. */
  freeMemory(): number | null;
  /** Resolves when the messages that wait by now have been read. */
  turn(): Promise<void>;
  /** Whether nothing is counted before somebody asks: a page then loads nothing for it. */
  asked?: boolean;
  /** Whether a load warms up by itself: somebody looks at what comes first. */
  warms?: boolean;
  /** The file system; absent in runtimes without one. */
  paths?: Paths;
  /** The only build, in runtimes where none can be chosen and compiled. */
  given?: Given;
  /** Opens the cache for what comes from servers; absent in runtimes without storage. */
  openStore?: OpenStore | undefined;
  /** An incremental SHA-256, where the runtime has one. */
  hasher?(): Hasher;
}
