/** The browser's own files as a store. A file that is written is its writer's alone, which keeps tabs apart. */

import { digest } from "../source/sha256.ts";
import { folderOf, inFolder, orNull } from "./opfs.ts";
import type { OpenStore, StoredFile } from "./store.ts";

/** Secure pages have it, and not every private window. */
export const openStore: OpenStore | undefined =
  "getDirectory" in (globalThis.navigator?.storage ?? {}) ? open : undefined;

async function open(directory?: string): ReturnType<OpenStore> {
  const folder = await folderOf(directory);
  const kept = inFolder(folder);
  return {
    ...kept,
    /** Ten times as fast as slices of a file, where several may have it; elsewhere it would keep other tabs out. */
    async read(name) {
      const shared =
        "mode" in ((globalThis as { FileSystemSyncAccessHandle?: Handle }).FileSystemSyncAccessHandle?.prototype ?? {});
      const handle = shared ? await orNull(folder.getFileHandle(name), "NotFoundError") : null;
      const file = handle && (await access(handle, { mode: "read-only" }));
      return file ? accessed(file) : kept.read(name);
    },
    async write(name, head) {
      const handle = await folder.getFileHandle(name, { create: true });
      for (let tries = 0; ; tries++) {
        const file = await access(handle);
        // A tab or worker that has just been closed lets go a moment later.
        if (file || tries === 5) return file && begun(file, head);
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
    },
    async room() {
      const { quota, usage } = await navigator.storage.estimate();
      return quota === undefined || usage === undefined ? null : quota - usage;
    },
    digest,
  };
}

/** Of workers, which the types of pages do not know. */
interface Accessible {
  createSyncAccessHandle(options?: object): Promise<SyncAccessHandle>;
}

type Handle = { prototype: object };

/** Null while another has it. */
const access = (handle: FileSystemFileHandle, options?: object): Promise<SyncAccessHandle | null> =>
  orNull(
    (handle as unknown as Accessible).createSyncAccessHandle(options),
    "NoModificationAllowedError",
    "InvalidStateError",
  );

interface SyncAccessHandle {
  read(into: Uint8Array, options: { at: number }): number;
  write(bytes: Uint8Array, options: { at: number }): number;
  getSize(): number;
  flush(): void;
  close(): void;
}

function begun(file: SyncAccessHandle, head: Uint8Array): StoredFile {
  try {
    if (file.getSize() === 0) file.write(head, { at: 0 });
  } catch (error) {
    file.close();
    throw error;
  }
  return accessed(file);
}

function accessed(file: SyncAccessHandle): StoredFile {
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
