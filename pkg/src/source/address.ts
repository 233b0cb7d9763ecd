import { EngineError } from "../types/errors.ts";

/** The URL that an option gives, relative ones from `base` on. */
export function addressOf(given: string | URL, base: string | null | undefined, option: string): URL {
  try {
    return new URL(given, base ?? undefined);
  } catch {
    const expected = base === null ? "a URL with its https://" : "a URL";
    // Nor may its cause show a password.
    const found = String(given).replace(/[/\\]{2}.*@/s, "//…@");
    const message = `${option}: ${JSON.stringify(found)} is not a URL`;
    throw new EngineError("InvalidArgument", message, { option, expected, found });
  }
}
