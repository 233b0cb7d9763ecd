/** Where a cache's files lie: OPFS in browsers, a directory elsewhere. */

/** What there is can be read and deleted … */
export interface Kept {
  names(): Promise<string[]>;
  /** Any number may read at once. Null where there is no such file. */
  read(name: string): Promise<StoredFile | null>;
  /** False where there was none. */
  remove(name: string): Promise<boolean>;
}

/** … and more of it written. */
export interface Store extends Kept {
  /** Reads and writes; where there is no such file, it is made with this at its beginning. Null while another tab holds it. */
  write(name: string, head: Uint8Array): Promise<StoredFile | null>;
  /** Bytes that may still be written; null where nothing tells. */
  room(): Promise<number | null>;
  /** SHA-256, the way that costs the runtime least. */
  digest(bytes: Uint8Array): Uint8Array | Promise<Uint8Array>;
}

export interface StoredFile {
  readonly size: number;
  /** Milliseconds since 1970. */
  readonly written: number;
  /** Bytes that were there, from `at` on. */
  read(into: Uint8Array, at: number): number | Promise<number>;
  /** The bytes must stay as they are until it is done. */
  write(bytes: Uint8Array, at: number): void | Promise<void>;
  /** Waits until the medium has it. */
  flush(): void | Promise<void>;
  close(): void;
}

/** What opens stores: by a directory of the caller's choice, or where the runtime's caches are. */
export type OpenStore = (directory?: string) => Promise<Store>;
