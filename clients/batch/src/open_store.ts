import { EngineError } from "ternlight/batch";
import { Database } from "./database.ts";
import { FolderStore } from "./folder_store.ts";
import type { Place, Store } from "./store.ts";
import { isPostgres } from "./url.ts";

export async function openStore({ queue, folder }: Place): Promise<Store> {
  if (folder !== undefined) return new FolderStore(folder);
  if (isPostgres(queue)) return Database.open(queue);
  const message = "a queue in Redis needs a folder for lines and answers; with PostgreSQL they may lie in its database";
  throw new EngineError("InvalidArgument", message, { option: "folder" });
}

export async function withStore<T>(place: Place, use: (store: Store) => Promise<T>): Promise<T> {
  const store = await openStore(place);
  try {
    return await use(store);
  } finally {
    await store.close();
  }
}
