/** What a beginner may have meant, where an address or a path of a model leads nowhere. */

import type { EngineError } from "../types/errors.ts";

const HUB = /^https?:\/\/(?:www\.)?(?:huggingface\.co|hf\.co)\/(?!api\/)([^/]+)\/([^/]+)(?:\/([^/]+))?/i;

/** What a file is that is no model, by the first bytes that the error tells. */
const STARTS: readonly [start: string, hint: string][] = [
  [
    "76 65 72 73 69 6f 6e 20",
    "that is a pointer of Git LFS, not the file that it stands for: `git lfs pull` fetches it",
  ],
  ["50 4b 03 04", "that is an archive, such as PyTorch's pickles: models are read from GGUF and safetensors files"],
  ["3c ", "that is a page or other markup, not the file that was asked for"],
];

/** A sentence that follows the error, or null. @param words of the command */
export function hintOf({ code, detail }: EngineError, words: readonly string[] = []): string | null {
  const { file = "", status, found = "" } = detail;
  if (code === "BadMagic") return STARTS.find(([start]) => found.startsWith(start))?.[1] ?? null;
  // A name on the hub is no address of a page, and its errors say what to do.
  if (words.some((word) => word.startsWith("hf:"))) return null;
  const [, owner, name, kind] = HUB.exec(file) ?? [];
  if (owner && name) return ofHub(file, `https://huggingface.co/${owner}/${name}`, kind, status);
  // The form in which people speak of a repository.
  const spoken = words.find((word) => /^[\w-][\w.-]*\/[\w-][\w.-]*$/.test(word) && word.endsWith(file));
  return code === "NotFound" && spoken
    ? `a model of Hugging Face is given by its address: https://huggingface.co/${spoken}/resolve/main/FILE.gguf, or up to main/ for a folder`
    : null;
}

function ofHub(file: string, repository: string, kind: string | undefined, status: unknown): string | null {
  if (kind === "blob") return `that is a page about the file; the file is ${file.replace("/blob/", "/resolve/")}`;
  if (kind !== "resolve") return `that is a page; files are under ${repository}/resolve/main/`;
  if (status === 401 || status === 403) {
    return `Hugging Face answers so where there is no such repository, or not for everybody: look at ${repository}`;
  }
  return status === 404 ? `the repository's files are listed at ${repository}/tree/main` : null;
}
