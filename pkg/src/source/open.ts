/** From a description of a file to its bytes. */

import { EngineError } from "../types/errors.ts";
import { BlobSource } from "./blob.ts";
import { HttpSource } from "./http.ts";
import type { IntegrityChecks } from "./integrity.ts";
import { checkSize, FILE_LIMITS, type FileLimits } from "./limits.ts";
import type { HttpOptions, UrlSpec } from "./request.ts";
import type { Paths, Source } from "./source.ts";
import type { FileSpec } from "./spec.ts";

/** What a load's files are opened with. */
export interface OpenContext {
  paths?: Paths | undefined;
  signal?: AbortSignal | undefined;
  http?: HttpOptions;
  /** Opens a file on a server through a cache; absent where nothing is kept. */
  url?(spec: UrlSpec, limits: FileLimits): Promise<Source>;
  /** Deletes from the cache what an error names; true where some of it is from an earlier load. */
  forget?(file: string): Promise<boolean>;
  /** Waits until the servers have said that what was opened is still theirs; fails where something is not. */
  confirm?(): Promise<void>;
  /** Deletes earlier versions from the cache: what was opened has made a model. */
  dropEarlier?(): Promise<void>;
  integrity?: IntegrityChecks | undefined;
}

export async function open(
  spec: FileSpec,
  { paths, signal, http, url }: OpenContext,
  limits = FILE_LIMITS.weights,
): Promise<Source> {
  switch (spec.kind) {
    case "bytes":
      return new BlobSource(new Blob([spec.bytes as Uint8Array<ArrayBuffer>]), spec.name ?? "bytes");
    case "blob":
      checkSize(spec.name, spec.blob.size, paths?.longestBlob ?? Infinity);
      return new BlobSource(spec.blob, spec.name);
    case "handle":
      return new BlobSource(await spec.handle.getFile(), spec.handle.name);
    case "path":
      if (!paths) throw new EngineError("InvalidArgument", "this runtime has no file paths", { file: spec.path });
      return paths.open(spec.path);
    case "url":
      if (url && /^https?:/i.test(spec.url)) return url(spec, limits);
      return (await HttpSource.open(spec, http, signal, limits)).source;
  }
}
