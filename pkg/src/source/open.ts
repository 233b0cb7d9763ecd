/** Opens the source that a spec describes. */

import { EngineError } from "../types/errors.ts";
import { BlobSource } from "./blob.ts";
import { HttpSource } from "./http.ts";
import type { Vouchers } from "./integrity.ts";
import type { HttpOptions, UrlSpec } from "./request.ts";
import type { Paths, Source } from "./source.ts";
import type { FileSpec } from "./spec.ts";

/** How files are opened. */
export interface Opening {
  paths?: Paths | undefined;
  signal?: AbortSignal | undefined;
  http?: HttpOptions;
  /** Files on servers, by a way of its own. */
  url?(spec: UrlSpec): Promise<Source>;
  /** Lets go of what was kept of a file; true where some of it is from earlier loads. */
  forget?(file: string): Promise<boolean>;
  /** What was opened has made a model: earlier versions of it may go. */
  settle?(): Promise<void>;
  vouchers?: Vouchers | undefined;
}

export async function open(spec: FileSpec, { paths, signal, http, url }: Opening): Promise<Source> {
  switch (spec.kind) {
    case "bytes":
      return new BlobSource(new Blob([spec.bytes as Uint8Array<ArrayBuffer>]), spec.name ?? "bytes");
    case "blob":
      return new BlobSource(spec.blob, spec.name);
    case "handle":
      return new BlobSource(await spec.handle.getFile(), spec.handle.name);
    case "path":
      if (!paths) throw new EngineError("InvalidArgument", "this runtime has no file paths", { file: spec.path });
      return paths.open(spec.path);
    case "url":
      if (url && /^https?:/i.test(spec.url)) return url(spec);
      return (await HttpSource.open(spec, http, signal)).source;
  }
}
