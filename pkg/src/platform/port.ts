import type { OpenStore } from "../cache/store.ts";
import type { Hasher } from "../source/sha256.ts";
import type { Paths } from "../source/source.ts";
import type { Given } from "./edge.ts";

/** Two ends that talk by messages: a worker and its owner, or both in one thread. */
export interface Port {
  post(message: unknown, transfer?: readonly Transferable[]): void;
  onmessage: ((message: unknown) => void) | null;
}

/** The owner's end of a worker. */
export interface WorkerPort extends Port {
  /** The worker could not start, or an error in it was caught by nobody. */
  onerror: ((error: Error) => void) | null;
  /** What this returns resolves when it has ended, where the runtime tells. */
  terminate(): unknown;
  /** Whether the process must live on for this worker's answers; absent where there is no such question. */
  hold?(awaited: boolean): void;
  /** Seconds of silence after which it counts as hanging, where that is not what is usual. */
  patience?: number;
}

/** What a worker needs of its runtime. `browser.ts` and `node.ts` both offer it, and the owner's `spawnEngine()`. */
export interface Inside {
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
