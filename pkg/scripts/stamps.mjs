import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../../", import.meta.url));
const stamps = path.join(root, "target", "stamps");

/**
 * Runs a step unless its outputs are there and were made from these inputs: files, folders, or any other text.
 * Contents are hashed, not times or places: a `git switch` there and back builds nothing, nor does a checkout that was moved.
 */
export async function ifChanged(name, { inputs, outputs, run }) {
  const digest = hash(inputs);
  if (matches(name, digest, outputs)) return;
  const stamp = path.join(stamps, name);
  rmSync(stamp, { force: true });
  await run();
  mkdirSync(stamps, { recursive: true });
  writeFileSync(stamp, digest);
}

/** Whether a step's outputs are there and were made from these inputs. */
export const isCurrent = (name, { inputs, outputs }) => matches(name, hash(inputs), outputs);

function matches(name, digest, outputs) {
  const stamp = path.join(stamps, name);
  return existsSync(stamp) && readFileSync(stamp, "utf8") === digest && outputs.every((file) => existsSync(file));
}

/** A digest of files, folders and texts. */
export function hash(inputs) {
  const sum = createHash("sha256");
  for (const input of inputs.flatMap(files)) {
    sum.update(`${path.isAbsolute(input) ? path.relative(root, input) : input}\0`);
    if (existsSync(input)) sum.update(readFileSync(input)).update("\0");
  }
  return sum.digest("hex");
}

function files(input) {
  if (!existsSync(input) || !statSync(input).isDirectory()) return [input];
  const inside = readdirSync(input, { recursive: true, withFileTypes: true });
  return inside
    .filter((entry) => entry.isFile())
    .map((entry) => path.join(entry.parentPath, entry.name))
    .sort();
}
