/** What a job needs, before anything is done for it. */

import { Files } from "./files.ts";
import { withStore } from "./open_store.ts";
import { openQueue } from "./queue.ts";
import type { Place } from "./store.ts";

export interface CheckOptions extends Place {
  /** The file of answers that is going to be collected; null where none is. */
  out: string | null;
  errors?: string;
}

/** Rejects where the queue does not answer, the place takes no jobs, or the files cannot be written. */
export async function check({ out, errors, ...place }: CheckOptions): Promise<void> {
  const queue = await openQueue(place.queue, null);
  await queue.close();
  await withStore(place, (store) => store.check());
  if (out !== null) await (await Files.open(out, { errors })).close();
}
