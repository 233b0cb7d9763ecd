/**
 * Names of models on a hub that speaks Hugging Face's interface: `hf:owner/repo`, with a file or a folder behind it
 * (`hf:owner/repo/file.gguf`) and a revision (`hf:owner/repo@v1`, `hf:owner/repo@v1/file.gguf`). What a repository holds is asked of the
 * hub, and of several models one is chosen. A page loads this file with the first such name.
 */

import { EngineError } from "../types/errors.ts";
import { shown } from "./address.ts";
import { chosen } from "./hub_choice.ts";
import { type HubName, parseHubName } from "./hub_name.ts";
import { checkSize, FILE_LIMITS } from "./limits.ts";
import { type HttpOptions, RetryPolicy, request, type UrlSpec } from "./request.ts";
import type { FileSpec, SourceSpec } from "./spec.ts";

export const HUB = "https://huggingface.co";

/** Where the hub is, and what this runtime knows of it. */
export interface HubSettings {
  /** As in the variable `HF_ENDPOINT`. */
  endpoint?: string | undefined;
  /** As in the variable `HF_TOKEN`: null where it is not set, undefined where there are no variables. It is sent to the hub alone. */
  token?: string | null | undefined;
  /** Addresses of files that are whole in the cache, for when the hub cannot be reached. */
  kept?(): Promise<readonly string[]>;
  signal?: AbortSignal | undefined;
  http?: HttpOptions;
}

/** Pages of a list, each of up to a thousand entries. */
const MAX_PAGES = 20;

/**
 * Finds what a name means, and works with it.
 *
 * @param work is given the source, and what to tell of it: the file that was chosen among several
 */
export async function onHub<T>(
  name: string,
  settings: HubSettings,
  work: (spec: SourceSpec, told: string[]) => Promise<T>,
): Promise<T> {
  const hub = new Hub(parseHubName(name), settings);
  try {
    const { spec, told } = await hub.find();
    return await work(spec, told);
  } catch (error) {
    throw hub.explained(error);
  }
}

class Hub {
  readonly #name: HubName;
  readonly #settings: HubSettings;
  readonly #endpoint: string;

  constructor(name: HubName, settings: HubSettings) {
    this.#name = name;
    this.#settings = settings;
    this.#endpoint = endpointOf(settings.endpoint);
  }

  async find(): Promise<{ spec: SourceSpec; told: string[] }> {
    const { path } = this.#name;
    if (/[^/]\.(gguf|safetensors|index\.json)$/i.test(path)) return { spec: this.#file(path), told: [] };
    const { files, other, told } = chosen(this.#name, await this.#names());
    const note =
      other.length > 0 ? [`${told}; it also has ${other.slice(0, 8).join(", ")}${other.length > 8 ? " …" : ""}`] : [];
    // The parts of a GGUF lie beside the first one.
    if (/\.gguf$/i.test(files[0]!) || files.length === 1) return { spec: this.#file(files[0]!), told: note };
    const named = files.map((file): [string, FileSpec] => [file.replace(/^.*\//, ""), this.#file(file)]);
    return { spec: { kind: "files", files: Object.fromEntries(named) }, told: note };
  }

  /** The paths of a repository's files, in its folder that is named. */
  async #names(): Promise<string[]> {
    const { path } = this.#name;
    const inside = (names: readonly string[]) => names.filter((name) => name.startsWith(path));
    try {
      return inside(await this.#listed());
    } catch (error) {
      const names = reached(error) ? [] : inside(await this.#kept());
      if (names.length === 0) throw error;
      return names;
    }
  }

  async #listed(): Promise<string[]> {
    const { repo, revision, path } = this.#name;
    const model = `${this.#endpoint}/api/models/${repo}`;
    const folder = path === "" ? "" : `/${escaped(path.replace(/\/$/, ""))}`;
    const first = `${model}/tree/${encodeURIComponent(revision)}${folder}?recursive=true`;
    const names: string[] = [];
    let next: string | null = first;
    for (let page = 0; next !== null && page < MAX_PAGES; page++) {
      const { body, link }: { body: unknown; link: string | null } = await this.#json(next).catch((error) => {
        // A hub that has no such list, as mirrors may have none, has the repository's description.
        const { status, reason } = (error as Partial<EngineError>).detail ?? {};
        if (next !== first || status !== 404 || reason) throw error;
        return this.#json(`${model}/revision/${encodeURIComponent(revision)}`);
      });
      names.push(...namesIn(body, shown(next)));
      next = link && new URL(link, next).origin === new URL(next).origin ? new URL(link, next).href : null;
    }
    return names;
  }

  async #json(url: string): Promise<{ body: unknown; link: string | null }> {
    const { http = {}, signal } = this.#settings;
    const limit = FILE_LIMITS.index.whole;
    return new RetryPolicy(http).answer(async () => {
      const { response, next, cancel } = await request(this.#spec(url), {}, http, signal);
      const pieces: Uint8Array[] = [];
      let size = 0;
      try {
        for (let piece = await next(); piece; piece = await next()) {
          size += piece.length;
          checkSize(shown(url), size, limit);
          pieces.push(piece.slice());
        }
      } finally {
        await cancel();
      }
      const text = await new Blob(pieces as BlobPart[]).text();
      const [, link = null] = /<([^>]*)>\s*;\s*rel="?next"?/.exec(response.headers.get("link") ?? "") ?? [];
      return { body: parsed(text, shown(url)), link };
    }, signal);
  }

  async #kept(): Promise<string[]> {
    const base = `${this.#base()}/`;
    const addresses = (await this.#settings.kept?.().catch(() => [])) ?? [];
    return addresses.filter((url) => url.startsWith(base)).map((url) => decodeURIComponent(url.slice(base.length)));
  }

  #base(): string {
    const { repo, revision } = this.#name;
    return `${this.#endpoint}/${repo}/resolve/${encodeURIComponent(revision)}`;
  }

  #file(path: string): UrlSpec {
    return this.#spec(`${this.#base()}/${escaped(path)}`);
  }

  #spec(url: string): UrlSpec {
    const { token } = this.#settings;
    return { kind: "url", url, headers: token ? [["authorization", `Bearer ${token}`]] : [] };
  }

  /** The hub's answers in words that say what to do. */
  explained(error: unknown): unknown {
    if (!(error instanceof EngineError)) return error;
    const { status, reason } = error.detail;
    const told = this.#words(status, reason);
    if (!told || !String(error.detail.file ?? "").startsWith(this.#endpoint)) return error;
    const code = status === 404 || (status === 401 && reason !== "GatedRepo") ? "NotFound" : error.code;
    return new EngineError(code, told, { ...error.detail, option: "source" }, { cause: error });
  }

  #words(status: unknown, reason: unknown): string | null {
    const { name, repo, revision } = this.#name;
    const { token } = this.#settings;
    const page = `${this.#endpoint}/${repo}`;
    const by = (tokenGiven: string, tokenLacking: string, without: string) =>
      token ? tokenGiven : token === null ? tokenLacking : without;
    if (reason === "GatedRepo" || (status === 403 && !reason)) {
      const then = by(
        "the token in HF_TOKEN is not of one of them",
        "then set HF_TOKEN to a token of yours",
        "nothing here tells it who asks, so download the file there and load that",
      );
      return `${name}: ${repo} is gated: its owner lets in those who accept the terms at ${page}; ${then}`;
    }
    if (reason === "RevisionNotFound") return `${name}: ${repo} has no revision ${JSON.stringify(revision)}`;
    if (reason === "EntryNotFound") return `${name}: ${repo} has no such file; ${page} shows what it has`;
    if (status === 401 && token && !reason) return `${name}: ${this.#endpoint} does not accept the token in HF_TOKEN`;
    if (reason === "RepoNotFound" || status === 401 || status === 404) {
      const then = by(
        "the token in HF_TOKEN may not read it",
        "HF_TOKEN must be set to a token that may read it",
        "cannot be had from here",
      );
      return `${name}: ${this.#endpoint} shows no model ${repo}: it is misspelt, or it is private and ${then}`;
    }
    if (status === 429) {
      const then = by("", ", or set HF_TOKEN", "");
      return `${name}: ${this.#endpoint} has had too many requests: try again later${then}`;
    }
    return null;
  }
}

/** Addresses of files that are whole in a cache, by the option of that name. */
export type Kept = (cache: boolean | string | undefined) => Promise<readonly string[]>;

/** What finds a name on the hub of a runtime, and works with it: `onHub` with the settings of that runtime. */
export type OnHub = <T>(
  name: string,
  given: { signal?: AbortSignal | undefined; cache?: boolean | string | undefined },
  work: (spec: SourceSpec, told: string[]) => Promise<T>,
) => Promise<T>;

function endpointOf(given: string | undefined): string {
  const text = given?.trim() || HUB;
  if (URL.canParse(text) && /^https?:$/.test(new URL(text).protocol)) {
    const { origin, pathname } = new URL(text);
    return `${origin}${pathname.replace(/\/+$/, "")}`;
  }
  const detail = { option: "HF_ENDPOINT", expected: "the address of a hub" };
  throw new EngineError("InvalidArgument", "HF_ENDPOINT is not the address of a hub, with its https://", detail);
}

const escaped = (path: string) => path.split("/").map(encodeURIComponent).join("/");

/** Whether a hub has answered. */
const reached = (error: unknown) =>
  !(error instanceof EngineError) || error.code !== "Network" || error.detail.status !== undefined;

function parsed(text: string, file: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new EngineError("Network", `${file}: the hub's answer is not JSON`, { file, expected: "JSON" }, { cause });
  }
}

/** Names of files in a list, or in a repository's description. */
function namesIn(body: unknown, file: string): string[] {
  const list = Array.isArray(body) ? body : (body as { siblings?: unknown } | null)?.siblings;
  if (!Array.isArray(list)) {
    const expected = "list of files";
    throw new EngineError("Network", `${file}: the hub's answer is no ${expected}`, { file, expected });
  }
  const entries = list as { type?: unknown; path?: unknown; rfilename?: unknown }[];
  return entries.flatMap((entry) => {
    const name = entry?.path ?? entry?.rfilename;
    const isFile = entry?.type === undefined || entry.type === "file";
    // They become parts of an address.
    return isFile && typeof name === "string" && !name.split("/").some((part) => /^\.{0,2}$/.test(part)) ? [name] : [];
  });
}
