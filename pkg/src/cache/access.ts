/**
 * Who may be given a file of the cache that no server has just confirmed.
 *
 * While a server answers, it decides: each load asks it with the credentials of that load. A copy that the load might have without an
 * answer is read meanwhile, and the load ends with it only when the answer has confirmed it. Where the server does not answer (it is away,
 * or answers 429 or 5xx), a file that is kept is given only to a load with the same credentials as the one that fetched it, and one that
 * was fetched without any is given to all. An address's own password and query are part of the file's name.
 */

import { hex } from "../source/integrity.ts";
import type { UrlSpec } from "../source/request.ts";
import { digest } from "../source/sha256.ts";

/** A load with a browser's cookies, which cannot be compared. */
const UNKNOWN = "unknown";

/** What authorises a request: a hash of the caller's headers; empty where there are none. */
export async function accessOf({ headers, credentials }: UrlSpec): Promise<string> {
  if (credentials === "include") return UNKNOWN;
  if (headers.length === 0) return "";
  const lines = headers.map(([name, value]) => `${name.toLowerCase()}: ${value}\n`).sort();
  return hashOf(lines.join(""), 16);
}

/** Whether a load may be given what another one has fetched, without asking the server. */
export const mayGet = (kept: string, own: string): boolean => kept === "" || (kept === own && own !== UNKNOWN);

export async function hashOf(text: string, bytes: number): Promise<string> {
  return hex((await digest(new TextEncoder().encode(text))).subarray(0, bytes));
}
