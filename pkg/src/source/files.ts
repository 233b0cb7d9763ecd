/** The files that make up a model. */

import { EngineError } from "../errors.ts";
import { open, type Paths, type Source } from "./source.ts";
import type { FileSpec, SourceSpec } from "./spec.ts";

export interface ModelFiles {
  weights: Source[];
  /** Of Hugging Face folders, parsed where they are there. */
  config: Uint8Array | null;
  generationConfig: unknown;
  tokenizer: unknown;
  tokenizerConfig: unknown;
  chatTemplate: string | null;
}

/** Files beside weights are small: whatever is larger is none of them. */
const MOST_SIDE_BYTES = 256 << 20;

export async function openFiles(spec: SourceSpec, paths: Paths | undefined, signal?: AbortSignal): Promise<ModelFiles> {
  const directory = spec.kind === "path" && (await paths?.isDirectory(spec.path));
  const find = finder(directory ? { kind: "folder", base: { kind: "path", path: `${spec.path}/` } } : spec);
  if (find) return openFolder(find, paths, signal);
  const weights = await open(spec as FileSpec, paths, signal);
  const files: ModelFiles = { ...NO_SIDE, weights: [weights] };
  // A single safetensors file cannot say what it is: its folder does.
  const beside = spec.kind === "url" || spec.kind === "path" ? folderOf(spec) : null;
  if (beside && (await isSafetensors(weights))) await addSide(files, finder(beside)!, paths, signal);
  return files;
}

const NO_SIDE = { config: null, generationConfig: null, tokenizer: null, tokenizerConfig: null, chatTemplate: null };

/** Where a folder keeps a file of some name; null where it surely has none. */
type Find = (name: string) => Promise<FileSpec | null>;

function finder(spec: SourceSpec): Find | null {
  switch (spec.kind) {
    case "folder":
      return async (name) => join(spec.base, name);
    case "files":
      return async (name) => spec.files[name] ?? null;
    case "directory":
      return (name) =>
        spec.handle.getFileHandle(name).then(
          (handle): FileSpec => ({ kind: "handle", handle }),
          () => null,
        );
    default:
      return null;
  }
}

type Base = Extract<FileSpec, { kind: "url" | "path" }>;

function join(base: Base, name: string): FileSpec {
  if (base.kind === "path") return { kind: "path", path: base.path + name };
  const url = new URL(base.url);
  url.pathname += name;
  return { ...base, url: url.href };
}

function folderOf(file: Base): SourceSpec {
  if (file.kind === "path") return { kind: "folder", base: { kind: "path", path: file.path.replace(/[^/\\]*$/, "") } };
  const url = new URL(file.url);
  url.pathname = url.pathname.replace(/[^/]*$/, "");
  return { kind: "folder", base: { ...file, url: url.href } };
}

async function isSafetensors(source: Source): Promise<boolean> {
  if (source.size < 9) return false;
  const start = new TextDecoder("latin1").decode(await source.read(0, 9));
  return start.endsWith("{") && !start.startsWith("GGUF");
}

async function openFolder(find: Find, paths: Paths | undefined, signal?: AbortSignal): Promise<ModelFiles> {
  const spec = await find("model.safetensors");
  const weights = spec && (await optional(() => open(spec, paths, signal)));
  if (!weights) {
    throw new EngineError("NotFound", "the folder has no model.safetensors", { file: "model.safetensors" });
  }
  const files: ModelFiles = { ...NO_SIDE, weights: [weights] };
  await addSide(files, find, paths, signal);
  return files;
}

async function addSide(files: ModelFiles, find: Find, paths: Paths | undefined, signal?: AbortSignal): Promise<void> {
  const bytes = async (name: string) => {
    const spec = await find(name);
    const source = spec && (await optional(() => open(spec, paths, signal)));
    if (!source) return null;
    try {
      if (source.size > MOST_SIDE_BYTES) {
        throw new EngineError("BadHeader", `${name} is too long`, {
          file: name,
          expected: `at most ${MOST_SIDE_BYTES} bytes`,
          found: String(source.size),
        });
      }
      return await source.read(0, source.size, signal ? { signal } : {});
    } finally {
      await source.close();
    }
  };
  const json = async (name: string) => {
    const found = await bytes(name);
    if (!found) return null;
    try {
      return JSON.parse(new TextDecoder().decode(found)) as unknown;
    } catch (cause) {
      throw new EngineError("BadHeader", `${name} is not JSON: ${(cause as Error).message}`, { file: name }, { cause });
    }
  };
  const [config, generationConfig, tokenizer, tokenizerConfig, template] = await Promise.all([
    bytes("config.json"),
    json("generation_config.json"),
    json("tokenizer.json"),
    json("tokenizer_config.json"),
    bytes("chat_template.jinja"),
  ]);
  const chatTemplate = template && new TextDecoder().decode(template);
  Object.assign(files, { config, generationConfig, tokenizer, tokenizerConfig, chatTemplate });
}

/** A file that need not be there. */
async function optional<T>(get: () => Promise<T>): Promise<T | null> {
  try {
    return await get();
  } catch (error) {
    if (error instanceof EngineError && error.code === "NotFound") return null;
    throw error;
  }
}
