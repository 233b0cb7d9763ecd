/** A signal that either of two aborts; `AbortSignal.any` is younger than the oldest browsers that are supported. */
export function eitherSignal(one: AbortSignal | undefined, other: AbortSignal): AbortSignal;
export function eitherSignal(one: AbortSignal | undefined, other: AbortSignal | undefined): AbortSignal | undefined;
export function eitherSignal(one: AbortSignal | undefined, other: AbortSignal | undefined): AbortSignal | undefined {
  if (!one || !other) return one ?? other;
  if ("any" in AbortSignal) return AbortSignal.any([one, other]);
  const either = new AbortController();
  for (const signal of [one, other]) {
    const abort = () => either.abort(signal.reason);
    if (signal.aborted) abort();
    else signal.addEventListener("abort", abort, { once: true, signal: either.signal });
  }
  return either.signal;
}

/** Settles with the work, or with the reason of an abort as soon as there is one; the work itself may go on unseen. */
export async function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const done = new AbortController();
  const aborted = new Promise<never>((_, reject) => {
    const abort = () => reject(signal.reason);
    if (signal.aborted) abort();
    else signal.addEventListener("abort", abort, { once: true, signal: done.signal });
  });
  try {
    return await Promise.race([aborted, work]);
  } finally {
    done.abort();
  }
}
