/** Where bytes come from, as plain data that can cross into a worker. */

import { show } from "../options/show.ts";
import { EngineError } from "../types/errors.ts";
import type { DirectoryHandleLike, FileHandleLike, FileSource, ModelSource } from "../types/index.ts";
import { addressOf } from "./address.ts";

export type FileSpec =
  | { kind: "url"; url: string; headers: [string, string][]; credentials?: Request["credentials"] }
  | { kind: "path"; path: string }
  | { kind: "blob"; blob: Blob; name: string }
  | { kind: "bytes"; bytes: Uint8Array; name?: string }
  | { kind: "handle"; handle: FileHandleLike };

/** One file, or a folder: by what its files' addresses begin with, by handle, or as its files by name. */
export type SourceSpec =
  | FileSpec
  | { kind: "folder"; base: Extract<FileSpec, { kind: "url" | "path" }> }
  | { kind: "directory"; handle: DirectoryHandleLike }
  | { kind: "files"; files: Record<string, FileSpec> };

export interface SpecRules {
  /** What a relative URL begins from; null where a string without a scheme is a path. */
  base: string | null;
  /** The path of a `file:` URL, where there are paths. */
  toPath?(url: URL): string;
}

/** A caller's source as data. A string is a URL if it has a scheme. */
export function toSpec(source: ModelSource, rules: SpecRules): SourceSpec {
  const file = toFileSpec(source, rules);
  if (file) {
    const address = file.kind === "url" ? file.url.replace(/[?#].*$/, "") : file.kind === "path" ? file.path : "";
    return (file.kind === "url" || file.kind === "path") && address.endsWith("/")
      ? { kind: "folder", base: file }
      : file;
  }
  if (typeof FileSystemDirectoryHandle !== "undefined" && source instanceof FileSystemDirectoryHandle) {
    return { kind: "directory", handle: source };
  }
  if (typeof source === "object" && source !== null && Object.getPrototypeOf(source) === Object.prototype) {
    return { kind: "files", files: named(Object.entries(source), rules) };
  }
  if (Array.isArray(source) || (typeof FileList !== "undefined" && source instanceof FileList)) {
    return { kind: "files", files: named(Array.from(source as readonly FileSource[], withName), rules) };
  }
  throw wrong("source", source);
}

/** Whether bytes come from a server. */
export function hasAddress(spec: SourceSpec): boolean {
  if (spec.kind === "files") return Object.values(spec.files).some(hasAddress);
  return spec.kind === "url" || (spec.kind === "folder" && spec.base.kind === "url");
}

function named(entries: readonly (readonly [string, FileSource])[], rules: SpecRules): Record<string, FileSpec> {
  const files: Record<string, FileSpec> = {};
  for (const [name, one] of entries) {
    const spec = toFileSpec(one, rules);
    if (!spec) throw wrong(`source[${JSON.stringify(name)}]`, one);
    if (Object.hasOwn(files, name)) {
      const reason = `two of the files given are called ${JSON.stringify(name)}`;
      throw new EngineError("InvalidArgument", reason, { option: "source", file: name });
    }
    // They have the name that they were given under.
    files[name] = spec.kind === "blob" || spec.kind === "bytes" ? { ...spec, name } : spec;
  }
  return files;
}

/** In a list files have the names that they bring along. */
function withName(file: FileSource, index: number): [string, FileSource] {
  const address = typeof file === "string" ? file : file instanceof URL ? file.pathname : (file as Request | null)?.url;
  const name = address?.replace(/[?#].*$/s, "").replace(/^.*[/\\]/s, "") ?? (file as File | null)?.name;
  return [name || String(index), file];
}

function toFileSpec(source: unknown, rules: SpecRules): FileSpec | null {
  if (typeof source === "string") {
    if (source === "") throw wrong("source", source);
    if (/^[a-z][a-z0-9+.-]+:/i.test(source) && !/^[a-z]:[\\/]/i.test(source))
      return url(addressOf(source, undefined, "source"), rules);
    return rules.base === null ? { kind: "path", path: source } : url(addressOf(source, rules.base, "source"), rules);
  }
  if (source instanceof URL) return url(source, rules);
  if (typeof Request !== "undefined" && source instanceof Request) {
    if (source.method !== "GET") throw wrong("source.method", source.method, "GET");
    return { kind: "url", url: source.url, headers: [...source.headers], credentials: source.credentials };
  }
  if (source instanceof Blob) return { kind: "blob", blob: source, name: (source as File).name ?? "" };
  if (source instanceof Uint8Array) return { kind: "bytes", bytes: source };
  if (source instanceof ArrayBuffer) return { kind: "bytes", bytes: new Uint8Array(source) };
  if (typeof FileSystemFileHandle !== "undefined" && source instanceof FileSystemFileHandle) {
    return { kind: "handle", handle: source };
  }
  return null;
}

function url(address: URL, rules: SpecRules): FileSpec {
  if (address.protocol !== "file:" || !rules.toPath) return { kind: "url", url: address.href, headers: [] };
  try {
    return { kind: "path", path: rules.toPath(address) };
  } catch (cause) {
    const message = `source: ${address} is no path: ${(cause as Error).message}`;
    throw new EngineError("InvalidArgument", message, { option: "source", found: address.href }, { cause });
  }
}

const SOURCES =
  "a URL, a path, a Request, a Blob, bytes, a file or directory handle, a list of files, or an object of files by name";

function wrong(option: string, value: unknown, expected = SOURCES): EngineError {
  const found = show(value);
  const detail = { option: "source", expected, found };
  return new EngineError("InvalidArgument", `${option} must be ${expected}, not ${found}`, detail);
}
