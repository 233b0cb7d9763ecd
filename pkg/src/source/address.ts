/** Addresses as callers give them, and as messages and reports may show them. */

import { EngineError } from "../types/errors.ts";

/** The URL that an option gives, relative ones from `base` on. */
export function addressOf(given: string | URL, base: string | null | undefined, option: string): URL {
  try {
    return new URL(given, base ?? undefined);
  } catch {
    const expected = base === null ? "a URL with its https://" : "a URL";
    // The error that was caught has the address with its password, so it is no cause.
    const found = redacted(String(given));
    const message = `${option}: ${JSON.stringify(found)} is not a URL`;
    throw new EngineError("InvalidArgument", message, { option, expected, found });
  }
}

/** An address without what may be secret in it: user, password, query and fragment. */
export function shown(address: string): string {
  const url = new URL(address);
  if (url.protocol === "data:" || url.protocol === "blob:") return url.protocol;
  return `${url.origin === "null" ? `${url.protocol}//` : url.origin}${url.pathname}`;
}

/** The same of a text that may be no URL, and then of all that could be secret in one. */
export function redacted(text: string): string {
  if (URL.canParse(text)) return shown(text);
  return text.replace(/^([a-z][a-z0-9+.-]*:)?([/\\]*).*@/is, "$1$2…@").replace(/([?#]).*/s, "$1…");
}

/** A runtime's message, in which Deno and Bun name the address that was asked for. */
export const withoutSecrets = (message: string): string =>
  message.replace(/\b[a-z][a-z0-9+.-]*:\/\/[^\s"'<>()]+/gi, redacted);

/** A model's path, its name on a hub or its address, as it was given to a program. Paths and names are shown as they are. */
export const shownSource = (given: string): string =>
  /^[a-z][a-z0-9+.-]+:/i.test(given) && !/^[a-z]:[\\/]/i.test(given) && !given.startsWith("hf:")
    ? redacted(given)
    : given;

/** An address to ask, and the header that its user and password ask with: `fetch` refuses them in an address. */
export function credentialsOf(address: string | URL): { url: URL; authorization: string | null } {
  const url = new URL(address);
  if (!url.username && !url.password) return { url, authorization: null };
  const authorization = `Basic ${btoa(unescaped(`${url.username}:${url.password}`))}`;
  url.username = url.password = "";
  return { url, authorization };
}

/** The bytes that a URL's escapes stand for, as characters. */
const unescaped = (text: string) =>
  text.replace(/%([0-9a-f]{2})/gi, (_, hex) => String.fromCharCode(Number.parseInt(hex, 16)));
