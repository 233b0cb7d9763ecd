/** As many requests as browsers send to a server at once. */
const MAX_CONCURRENT = 6;

/**
 * Runs `work` over a list, at most `MAX_CONCURRENT` at once, and resolves with the results in the list's order. After an error nothing
 * more is begun; it is thrown when everything that was under way has ended.
 */
export async function mapConcurrent<T, R>(items: readonly T[], work: (item: T) => Promise<R>): Promise<R[]> {
  const results: R[] = [];
  let next = 0;
  async function runner() {
    while (next < items.length) {
      const index = next++;
      try {
        results[index] = await work(items[index]!);
      } catch (error) {
        next = items.length;
        throw error;
      }
    }
  }
  for (const end of await Promise.allSettled(Array.from({ length: MAX_CONCURRENT }, runner))) {
    if (end.status === "rejected") throw end.reason;
  }
  return results;
}
