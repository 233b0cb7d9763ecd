/** Takes a memory's pages from the system before they are needed. */

/** The smallest page of any system. */
const PAGE = 4096;

/**
 * Writes to every page, so that no token waits for the system to find one: a page that was reserved and never written has no memory yet,
 * and reading it gives it none. Adding no bit in one atomic step changes nothing, also beside threads that write.
 */
export function prefault({ buffer }: WebAssembly.Memory): void {
  const bytes = new Uint8Array(buffer);
  for (let at = 0; at < bytes.length; at += PAGE) Atomics.or(bytes, at, 0);
}
