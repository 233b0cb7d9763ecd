/** One of two ends that exchange messages: a worker and its owner, or both in one thread. */
export interface Port {
  post(message: unknown, transfer?: readonly Transferable[]): void;
  onmessage: ((message: unknown) => void) | null;
}

/** The owner's end of a worker. */
export interface WorkerPort extends Port {
  /** The worker could not start, or an error in it was not caught. */
  onerror: ((error: Error) => void) | null;
  /** Ends the worker. What it returns resolves when the worker has ended, where the runtime tells. */
  terminate(): unknown;
  /** Whether the worker keeps the process alive; absent in runtimes whose workers never do. */
  hold?(awaited: boolean): void;
  /** Seconds of silence after which the worker counts as hanging. @default 30 */
  hangSeconds?: number;
}
