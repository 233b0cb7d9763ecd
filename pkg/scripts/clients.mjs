import { existsSync, readdirSync } from "node:fs";
import path from "node:path";
import { root } from "./cargo.mjs";

/** The packages that build on this one, as folders from the root: `clients/react`, for example. */
export function clients() {
  const folder = path.join(root, "clients");
  if (!existsSync(folder)) return [];
  const names = readdirSync(folder).filter((name) => existsSync(path.join(folder, name, "package.json")));
  return names.sort().map((name) => `clients/${name}`);
}
