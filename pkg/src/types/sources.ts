/** Where a model's bytes come from, and how they are brought. */

import type { Blob, Request, URL } from "./web.ts";

/**
 * One file of a model. A string or URL is http(s), a name on Hugging Face's hub (`hf:owner/repo`), or a file path under Node, Deno and
 * Bun.
 */
export type FileSource = string | URL | Request | Blob | Uint8Array | ArrayBuffer | FileHandleLike;

/**
 * Where a model comes from: one GGUF file, any part of a split one (`-00001-of-00003.gguf`) whose other parts lie beside it, or a
 * folder. A folder has one GGUF, or `config.json`, `model.safetensors` or its shards and their index, `tokenizer.json` and
 * `tokenizer_config.json`. A folder is given as a string or URL that ends in `/`, a directory path, a directory handle, a list of its
 * files, or its files by name. A URL folder cannot be listed: its GGUF must be named.
 */
export type ModelSource =
  | FileSource
  | DirectoryHandleLike
  | readonly FileSource[]
  | FileListLike
  | Record<string, FileSource>;

/**
 * A browser's FileSystemFileHandle. This type and the next two are written out for projects without the DOM's types, which have no
 * name for them.
 */
export interface FileHandleLike {
  readonly kind: "file";
  readonly name: string;
  getFile(): Promise<NamedBlob>;
}

/** A browser's FileSystemDirectoryHandle. */
export interface DirectoryHandleLike {
  readonly kind: "directory";
  readonly name: string;
  getFileHandle(name: string): Promise<FileHandleLike>;
}

/** A browser's FileList. */
export interface FileListLike {
  readonly length: number;
  item(index: number): NamedBlob | null;
  readonly [index: number]: NamedBlob;
}

type NamedBlob = Blob & { readonly name: string };

/**
 * How a load brings its bytes. What comes from http and https is kept in a cache: in a page in its origin's private file system,
 * elsewhere in `$XDG_CACHE_HOME/ternlight` (`~/.cache`, `~/Library/Caches`, `%LOCALAPPDATA%`).
 */
export interface SourceOptions {
  /**
   * Keeps what arrives. A load that was interrupted continues where it was, and the next load only asks whether the file is still the
   * same. `false` neither keeps nor reads anything; a string is another directory (in a page, its name). Files that the server gives
   * neither an ETag nor a Last-Modified are not kept.
   * @default true
   */
  cache?: boolean | string | undefined;
  /**
   * `always` hashes each chunk of 512 kB that is read from the cache and fetches a damaged one again. `auto` does so only for what an
   * interrupted load has left.
   * @default "auto"
   */
  verify?: "auto" | "always" | undefined;
  /**
   * SHA-256 of the file, as 64 hex digits or as `sha256-` and base64. A model of several files needs the hash of each file that is
   * read, by its name. A file with another hash, or without one here, is refused. For a file from a cache that has hashed it before,
   * that hash counts.
   * @default none
   */
  integrity?: string | Readonly<Record<string, string>> | undefined;
  /**
   * Ranges requested from a server at once, from 1 to 16. One request is enough where it alone brings more than 64 MB/s.
   * @default 4 requests
   */
  connections?: number | undefined;
}

/** How far a load is. */
export interface Progress {
  /** `header`, then `download`, then `pack` when all weights are in place, then `ready`. */
  phase: "header" | "download" | "pack" | "ready";
  /** Bytes of weights that have arrived. */
  loaded: number;
  /** Bytes of weights in all; 0 while the header is read. */
  total: number;
  /** Over about the last second. */
  bytesPerSecond: number;
}
