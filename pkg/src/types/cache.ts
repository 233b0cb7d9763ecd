/** What loads have kept of files from servers. */

import type { URL } from "./web.ts";

/** A file from a server, in the cache. */
export interface CachedFile {
  id: string;
  /**
   * Where it came from, without user, password and query; empty where the head of the file is damaged, or was written by another
   * version.
   */
  url: string;
  /** The file's size in bytes; where nothing tells it, the bytes that it takes of the storage. */
  size: number;
  /** Bytes of the file that are here. */
  kept: number;
  /** Whether all of the file is here. */
  complete: boolean;
  /** When something of it was last kept. */
  written: Date;
}

export interface CacheOptions {
  /** The directory, as in the load option `cache`. @default where loads keep files by themselves */
  directory?: string | undefined;
}

/** The files that loads have kept. */
export interface ModelCache {
  /**
   * Lists the files, the newest first.
   *
   * @returns an empty list where this runtime has no storage
   * @throws {EngineError} `InvalidArgument` for an unknown option
   */
  list(options?: CacheOptions): Promise<CachedFile[]>;
  /**
   * Deletes files.
   *
   * @param what a file of the list, the address of a file, or an address that ends in `/` for everything beneath it; without it,
   *   everything is deleted
   * @returns how many files were deleted
   * @throws {EngineError} `InUse` in a page where a load has the file open, in this tab or another one
   */
  delete(what?: CachedFile | string | URL, options?: CacheOptions): Promise<number>;
}
