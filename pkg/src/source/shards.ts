/** Which files make up a model, by their names. */

import { EngineError } from "../types/errors.ts";

export const SINGLE = "model.safetensors";
export const INDEX = "model.safetensors.index.json";

/** Of one model. The largest that are published have a few hundred. */
const MOST = 1024;

/** The names of all parts, from that of any: `name-00002-of-00003.gguf`. A file that is no part is its own only one. */
export function partsOf(name: string): string[] {
  const [, stem, , digits, ending] = /^(.*)-(\d{5})-of-(\d{5})(\.(?:gguf|safetensors))$/is.exec(name) ?? [];
  if (!digits) return [name];
  const count = Number(digits);
  if (count === 0 || count > MOST) {
    const expected = `1 to ${MOST}`;
    throw new EngineError("BadHeader", `${name}: a model in ${count} parts`, { file: name, expected, found: digits });
  }
  return Array.from({ length: count }, (_, i) => `${stem}-${String(i + 1).padStart(5, "0")}-of-${digits}${ending}`);
}

/** What is taken for the model in a folder, best first. */
const KINDS = [/^model-\d.*\.safetensors$/i, /^[^.].*\.gguf$/i, /^[^.].*\.safetensors$/i];

/** The files of the only model among a folder's. */
export function onlyModel(folder: string, names: readonly string[]): string[] {
  if (names.includes(SINGLE)) return [SINGLE];
  // A lone file may be called anything.
  if (names.length === 1) return partsOf(names[0]!);
  for (const kind of KINDS) {
    const weights = names.filter((name) => kind.test(name));
    const models = new Map(weights.map((name) => partsOf(name)).map((parts) => [parts[0]!, parts]));
    if (models.size === 1) return [...models.values()][0]!;
    if (models.size > 1) {
      const found = [...models.keys()].sort().join(", ");
      const reason = `${folder} has ${models.size} models, name one of them: ${found}`;
      throw new EngineError("InvalidArgument", reason, { option: "source", expected: "one model", found });
    }
  }
  throw new EngineError("NotFound", `${folder} has no GGUF file and no safetensors`, { file: SINGLE });
}

/** What an index says: each file's tensors. */
export type Shards = Map<string, string[]>;

export function readIndex(name: string, index: unknown): Shards {
  const bad = (reason: string, detail: object) =>
    new EngineError("BadHeader", `${name}: ${reason}`, { file: name, key: "weight_map", ...detail });
  const map = (index as { weight_map?: unknown } | null)?.weight_map;
  if (typeof map !== "object" || map === null) throw bad("there is no weight_map", { expected: "an object" });
  const shards: Shards = new Map();
  for (const [tensor, file] of Object.entries(map)) {
    // Its own neighbours alone: no paths, no escapes, no hidden files.
    if (typeof file !== "string" || !/^\w[\w .()+-]*\.safetensors$/.test(file)) {
      const found = typeof file === "string" ? JSON.stringify(file.slice(0, 80)) : typeof file;
      throw bad(`${found} is no name of a safetensors file`, { tensor, expected: "a file in the same folder", found });
    }
    const tensors = shards.get(file);
    if (tensors) tensors.push(tensor);
    else shards.set(file, [tensor]);
  }
  if (shards.size === 0 || shards.size > MOST) {
    throw bad("wrong number of files", { expected: `1 to ${MOST}`, found: String(shards.size) });
  }
  return new Map([...shards].sort(([a], [b]) => (a < b ? -1 : 1)));
}
