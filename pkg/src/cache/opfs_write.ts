/** The browser's own files as a store. A file that is written is its writer's alone, which keeps tabs apart. */

import { folderOf, inFolder, orNull } from "./opfs.ts";
import type { OpenStore, StoredFile } from "./store.ts";

/** Secure pages have it, and not every private window. */
export const openStore: OpenStore | undefined =
  "getDirectory" in (globalThis.navigator?.storage ?? {}) ? open : undefined;

async function open(directory?: string): ReturnType<OpenStore> {
  const folder = await folderOf(directory);
  return {
    ...inFolder(folder),
    async write(name, head) {
      const handle = (await folder.getFileHandle(name, { create: true })) as FileSystemFileHandle & Writable;
      for (let tries = 0; ; tries++) {
        const file = await orNull(handle.createSyncAccessHandle(), "NoModificationAllowedError", "InvalidStateError");
        // A tab or worker that has just been closed lets go a moment later.
        if (file || tries === 5) return file && writer(file, head);
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
    },
    async room() {
      const { quota, usage } = await navigator.storage.estimate();
      return quota === undefined || usage === undefined ? null : quota - usage;
    },
  };
}

/** Of workers, which the types of pages do not know. */
interface Writable {
  createSyncAccessHandle(): Promise<SyncAccessHandle>;
}

interface SyncAccessHandle {
  read(into: Uint8Array, options: { at: number }): number;
  write(bytes: Uint8Array, options: { at: number }): number;
  getSize(): number;
  flush(): void;
  close(): void;
}

function writer(file: SyncAccessHandle, head: Uint8Array): StoredFile {
  try {
    if (file.getSize() === 0) file.write(head, { at: 0 });
  } catch (error) {
    file.close();
    throw error;
  }
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
    flush: () => file.flush(),
    close: () => file.close(),
  };
}
