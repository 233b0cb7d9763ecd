/** Puts the package into the extension: what an extension runs must lie in its own folder. */
import { cpSync, rmSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

const here = import.meta.dirname;
const from = path.dirname(fileURLToPath(import.meta.resolve("ternlight/package.json")));
const to = path.join(here, "ternlight");

rmSync(to, { recursive: true, force: true });
// Not the parts for Node.
const wanted = (file) => !/\.(jsx|d\.ts)$|[/\\](node[\w-]*|cli|batch|server)\.js$/.test(file);
for (const folder of ["dist", "models"]) {
  cpSync(path.join(from, folder), path.join(to, folder), { recursive: true, filter: wanted });
}
