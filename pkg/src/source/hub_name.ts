/** What a name of a model on a hub says. */

import { EngineError } from "../types/errors.ts";

export interface HubName {
  /** As it was given. */
  name: string;
  /** `owner/repo` */
  repo: string;
  revision: string;
  /** Of a file, or of a folder with a slash at its end; empty for the whole repository. */
  path: string;
}

const EXPECTED = "hf:owner/repo, hf:owner/repo/file.gguf or hf:owner/repo@revision";
const PART = /^[A-Za-z0-9][\w.-]*$/;
const FILE = /\.(gguf|safetensors|json)$/i;

export function parseHubName(name: string): HubName {
  const [, owner = "", repo = "", rest = ""] = /^hf:(?:\/\/)?([^/@]+)\/([^/@]+)(.*)$/s.exec(name) ?? [];
  if (!PART.test(owner) || !PART.test(repo) || repo.includes("..")) throw wrong(name);
  const { revision, path } = rest.startsWith("@") ? behind(rest.slice(1)) : before(rest.replace(/^\//, ""));
  const parts = path.replace(/\/$/, "").split("/");
  const bad = path !== "" && parts.some((part) => /^\.{0,2}$/.test(part) || /[?#\\]/.test(part));
  if (bad || !/^[\w.][\w./-]*$/.test(revision) || revision.includes("..")) throw wrong(name);
  // Anything that is not named as a file is a folder.
  const folder = path !== "" && !FILE.test(path) && !path.endsWith("/");
  return { name, repo: `${owner}/${repo}`, revision, path: folder ? `${path}/` : path };
}

/** `revision`, or `revision/path` where that is a file's; a revision such as `refs/pr/1` has slashes of its own. */
function behind(text: string): { revision: string; path: string } {
  const own = /^refs\/[^/]+\/[^/]+/.exec(text)?.[0] ?? text.split("/")[0]!;
  const path = text.slice(own.length + 1);
  return FILE.test(text) ? { revision: own, path } : { revision: text.replace(/\/$/, ""), path: "" };
}

/** `path` or `path@revision` */
function before(text: string): { revision: string; path: string } {
  const at = text.lastIndexOf("@");
  return at < 0 ? { revision: "main", path: text } : { revision: text.slice(at + 1), path: text.slice(0, at) };
}

function wrong(found: string): EngineError {
  const message = `source must be ${EXPECTED}, not ${JSON.stringify(found)}`;
  return new EngineError("InvalidArgument", message, { option: "source", expected: EXPECTED, found });
}
