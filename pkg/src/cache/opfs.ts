/** The browser's own files, as far as pages reach them: only workers write. */

import type { Kept, StoredFile } from "./store.ts";

export const openOpfs = async (directory?: string): Promise<Kept> => inFolder(await folderOf(directory));

export async function folderOf(directory = "ternlight"): Promise<FileSystemDirectoryHandle> {
  const root = await navigator.storage.getDirectory();
  return root.getDirectoryHandle(directory, { create: true });
}

export function inFolder(folder: FileSystemDirectoryHandle): Kept {
  return {
    async names() {
      const names: string[] = [];
      for await (const name of folder.keys()) names.push(name);
      return names;
    },
    async read(name) {
      const handle = await orNull(folder.getFileHandle(name), "NotFoundError");
      return handle && reader(await handle.getFile());
    },
    async remove(name) {
      return (
        (await orNull(
          folder.removeEntry(name).then(() => true),
          "NotFoundError",
        )) ?? false
      );
    },
  };
}

export async function orNull<T>(work: Promise<T>, ...names: string[]): Promise<T | null> {
  try {
    return await work;
  } catch (error) {
    if (names.includes((error as Error).name)) return null;
    throw error;
  }
}

/** Does not stand in a writer's way, nor in another reader's; pages have no other way to read. */
function reader(file: File): StoredFile {
  const readOnly = () => {
    throw new Error("opened for reading");
  };
  return {
    size: file.size,
    written: file.lastModified,
    async read(into, at) {
      const bytes = await file.slice(at, at + into.length).arrayBuffer();
      into.set(new Uint8Array(bytes));
      return bytes.byteLength;
    },
    write: readOnly,
    flush() {},
    close() {},
  };
}
