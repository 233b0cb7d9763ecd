/** Folders, wherever they lie: a file by its name, and where it can be known the names of all. */

import { EngineError } from "../types/errors.ts";
import type { Paths } from "./source.ts";
import type { FileSpec, SourceSpec } from "./spec.ts";

export interface Folder {
  /** For messages. */
  name: string;
  /** Of its files; null where it cannot be listed, as on a plain server. */
  names: readonly string[] | null;
  /** Where it keeps a file of some name; null where it surely has none. */
  find(name: string): Promise<FileSpec | null>;
}

/** What a source names: a folder, or a file in one; `folder` is null for a file that stands alone. */
export type Place = { folder: Folder; file: null } | { folder: Folder | null; file: string };

type Base = Extract<FileSpec, { kind: "url" | "path" }>;

export async function locate(spec: SourceSpec, paths: Paths | undefined): Promise<Place> {
  switch (spec.kind) {
    case "folder":
      return { folder: await atBase(spec.base, paths, true), file: null };
    case "directory":
      return { folder: await ofHandle(spec.handle as FileSystemDirectoryHandle), file: null };
    case "files": {
      const { files } = spec;
      const find = async (name: string) => (Object.hasOwn(files, name) ? files[name]! : null);
      return { folder: { name: "what was given", names: Object.keys(files), find }, file: null };
    }
    case "path": {
      if (await paths?.list(spec.path)) {
        return { folder: await atBase({ kind: "path", path: `${spec.path}/` }, paths, true), file: null };
      }
      const [, base, file] = /^(.*[/\\])?(.*)$/s.exec(spec.path) as unknown as [string, string | undefined, string];
      return { folder: await atBase({ kind: "path", path: base ?? "" }, paths, false), file };
    }
    case "url": {
      const url = new URL(spec.url);
      const file = url.pathname.replace(/^.*\//s, "");
      if (url.protocol === "blob:" || url.protocol === "data:") return { folder: null, file };
      url.pathname = url.pathname.slice(0, url.pathname.length - file.length);
      return { folder: await atBase({ ...spec, url: url.href }, paths, false), file };
    }
    case "blob":
      return { folder: null, file: spec.name };
    case "handle":
      return { folder: null, file: spec.handle.name };
    case "bytes":
      return { folder: null, file: "" };
  }
}

/** Names begin where the base ends. */
async function atBase(base: Base, paths: Paths | undefined, list: boolean): Promise<Folder> {
  if (base.kind === "path") {
    const names = list ? await paths?.list(base.path) : null;
    if (list && paths && !names)
      throw new EngineError("NotFound", `${base.path}: there is no such folder`, { file: base.path });
    const find = async (name: string): Promise<FileSpec> => ({ kind: "path", path: base.path + name });
    return { name: base.path, names: names ?? null, find };
  }
  const find = async (name: string): Promise<FileSpec> => {
    const url = new URL(base.url);
    url.pathname += name;
    return { ...base, url: url.href };
  };
  const { origin, pathname } = new URL(base.url);
  return { name: origin + pathname, names: null, find };
}

async function ofHandle(directory: FileSystemDirectoryHandle): Promise<Folder> {
  const handles = new Map<string, FileSystemFileHandle>();
  for await (const handle of directory.values()) {
    if (handle.kind === "file") handles.set(handle.name, handle as FileSystemFileHandle);
  }
  const find = async (name: string): Promise<FileSpec | null> => {
    const handle = handles.get(name);
    return handle ? { kind: "handle", handle } : null;
  };
  return { name: directory.name, names: [...handles.keys()], find };
}
