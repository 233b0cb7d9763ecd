/** Where a cache's files lie: OPFS in browsers, a directory elsewhere. */

export interface Store {
  names(): Promise<string[]>;
  /** Any number may read at once. Null where there is no such file. */
  read(name: string): Promise<StoredFile | null>;
  /** Reads and writes, and makes the file where there is none. Null while another tab holds it. */
  write(name: string): Promise<StoredFile | null>;
  /** False where there was none. */
  remove(name: string): Promise<boolean>;
  /** Bytes that may still be written; null where nothing tells. */
  room(): Promise<number | null>;
}

/** Writes come back at once: they go to the system's memory. */
export interface StoredFile {
  readonly size: number;
  /** Milliseconds since 1970. */
  readonly written: number;
  /** Bytes that were there, from `at` on. */
  read(into: Uint8Array, at: number): number | Promise<number>;
  write(bytes: Uint8Array, at: number): void;
  empty(): void;
  /** Waits until the medium has it. */
  flush(): void | Promise<void>;
  close(): void;
}

/** What opens stores: by a directory of the caller's choice, or where the runtime's caches are. */
export type OpenStore = (directory?: string) => Promise<Store>;
