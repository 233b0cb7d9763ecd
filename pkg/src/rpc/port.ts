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
