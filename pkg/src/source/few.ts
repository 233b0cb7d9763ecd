/** As many as browsers send to a server at once. */
const AT_ONCE = 6;

/**
 * `work` over a list, a few at once; results in the list's order. After an error nothing is begun any more, and it is thrown when
 * all that was has ended.
 */
export async function few<T, R>(items: readonly T[], work: (item: T) => Promise<R>): Promise<R[]> {
  const results: R[] = [];
  let next = 0;
  async function some() {
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
  for (const end of await Promise.allSettled(Array.from({ length: AT_ONCE }, some))) {
    if (end.status === "rejected") throw end.reason;
  }
  return results;
}
