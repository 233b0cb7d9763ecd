/**
 * Requests that the process makes of itself. What they carry lies beside them: on its way through streams of bytes it would cost more than
 * all else that the server does for an answer.
 */

export interface Inside {
  /** The body, which is JSON. */
  text: string;
  /** Ends the request. */
  signal: AbortSignal;
  /** What would be the body of a response that is no error; its response has none. */
  reply?: unknown;
}

const all = new WeakMap<Request, Inside>();

/** A request that carries this. */
export function requestInside(url: string, inside: Inside): Request {
  const request = new Request(url, { method: "POST" });
  all.set(request, inside);
  return request;
}

/** Null for a request that came from elsewhere. */
export const insideOf = (request: Request): Inside | null => all.get(request) ?? null;
