/** What every host runs, as a user would write it. */
import { run } from "ternlight";

// No `await` at the top: Vite 5 and 6 build for browsers that lack it.
export async function program() {
  const bytes = Uint8Array.from({ length: 4096 }, (_, i) => (7 * i + 3) & 255);
  const { threadsReason, ...answer } = await run({ bytes });
  return JSON.stringify(answer);
}
