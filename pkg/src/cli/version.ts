import { readFileSync } from "node:fs";

/** The version of the package that the built file belongs to. */
export const version = (): string =>
  JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8")).version;
