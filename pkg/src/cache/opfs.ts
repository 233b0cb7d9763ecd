/** The browser's own files as a store. A file that is written is its writer's alone, which keeps tabs apart. */

import type { Store, StoredFile } from "./store.ts";

export async function openOpfs(directory = "ternlight"): Promise<Store> {
  const { storage } = navigator;
  const root = await storage.getDirectory();
  const folder = await root.getDirectoryHandle(directory, { create: true });
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
    async write(name) {
      const handle = (await folder.getFileHandle(name, { create: true })) as FileSystemFileHandle & Writable;
      for (let tries = 0; ; tries++) {
        const file = await orNull(handle.createSyncAccessHandle(), "NoModificationAllowedError", "InvalidStateError");
        // A tab or worker that has just been closed lets go a moment later.
        if (file || tries === 5) return file && writer(file);
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
    },
    async remove(name) {
      return (
        (await orNull(
          folder.removeEntry(name).then(() => true),
          "NotFoundError",
        )) ?? false
      );
    },
    async room() {
      const { quota, usage } = await storage.estimate();
      return quota === undefined || usage === undefined ? null : quota - usage;
    },
  };
}

async function orNull<T>(work: Promise<T>, ...names: string[]): Promise<T | null> {
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
    empty: readOnly,
    flush() {},
    close() {},
  };
}

/** Of workers, which the types of pages do not know. */
interface Writable {
  createSyncAccessHandle(): Promise<SyncAccessHandle>;
}

interface SyncAccessHandle {
  read(into: Uint8Array, options: { at: number }): number;
  write(bytes: Uint8Array, options: { at: number }): number;
  truncate(size: number): void;
  getSize(): number;
  flush(): void;
  close(): void;
}

function writer(file: SyncAccessHandle): StoredFile {
  return {
    get size() {
      return file.getSize();
    },
    written: Date.now(),
    read: (into, at) => file.read(into, { at }),
    write(bytes, at) {
      // Chromium throws where the quota is reached; the standard allows to write less.
      if (file.write(bytes, { at }) !== bytes.length) throw new DOMException("storage is full", "QuotaExceededError");
    },
    empty: () => file.truncate(0),
    flush: () => file.flush(),
    close: () => file.close(),
  };
}
