/** The files that make up a model. */

import { EngineError } from "../types/errors.ts";
import { mapConcurrent } from "./concurrent.ts";
import { type Folder, locate } from "./folder.ts";
import type { IntegrityChecks } from "./integrity.ts";
import { checkSize, FILE_LIMITS, type FileLimits } from "./limits.ts";
import { type OpenContext, open } from "./open.ts";
import { INDEX, onlyModel, partsOf, readIndex, type Shards, SINGLE } from "./shards.ts";
import type { Source } from "./source.ts";
import type { FileSpec, SourceSpec } from "./spec.ts";

export interface ModelFiles {
  /** One file, or a model's parts. */
  weights: Source[];
  /** The tensors that an index says each of them has; null without an index. */
  promised: string[][] | null;
  /** What safetensors need to be understood; null where there is none. */
  config: Uint8Array | null;
  /**
   * What else lies beside the weights. Of safetensors it is on its way already, and opening did not wait for it; of a GGUF, which needs it
   * only where its own header says nothing, it is opened when this is called.
   */
  side(): Promise<SideFiles>;
}

/** Of Hugging Face folders, parsed where they are there. */
export interface SideFiles {
  config: Uint8Array | null;
  generationConfig: unknown;
  tokenizer: unknown;
  tokenizerConfig: unknown;
  chatTemplate: string | null;
}

export const NO_SIDE: SideFiles = {
  config: null,
  generationConfig: null,
  tokenizer: null,
  tokenizerConfig: null,
  chatTemplate: null,
};
/** Of weights that need nothing, or have nothing beside them. */
const ALONE = { config: null, side: async () => NO_SIDE };

type Beside = Pick<ModelFiles, "config" | "side">;

const CONFIG = "config.json";
/** PEFT's names. */
const ADAPTER = "adapter_model.safetensors";
const ADAPTER_CONFIG = "adapter_config.json";

export async function openFiles(spec: SourceSpec, context: OpenContext): Promise<ModelFiles> {
  const { folder, file } = await locate(spec, context.paths);
  const opener = new Opener(context);
  try {
    return file === null ? await opener.folder(folder) : await opener.file(folder, file, spec as FileSpec);
  } catch (error) {
    await opener.close();
    throw error;
  }
}

/** An adapter: PEFT's folder or the weights in it, or a GGUF; with a name for it. */
export async function openAdapter(spec: SourceSpec, context: OpenContext): Promise<ModelFiles & { name: string }> {
  const { folder, file } = await locate(spec, context.paths);
  const opener = new Opener(context);
  try {
    const files = await opener.adapter(folder, file, spec as FileSpec);
    const [last] = (file || folder?.name || "")
      .split(/[\\/]+/)
      .filter(Boolean)
      .slice(-1);
    return { ...files, name: last?.replace(/\.(gguf|safetensors)$/i, "") || "adapter" };
  } catch (error) {
    await opener.close();
    throw error;
  }
}

class Opener {
  readonly #context: OpenContext;
  readonly #opened: Source[] = [];
  /** Why files are not there. */
  readonly #absent = new Map<string, EngineError>();

  constructor(context: OpenContext) {
    this.#context = context;
  }

  async file(folder: Folder | null, name: string, spec: FileSpec): Promise<ModelFiles> {
    if (folder && name.endsWith(".safetensors.index.json")) return this.#indexed(folder, name);
    const parts = partsOf(name);
    const [weights, side] = await settled(
      parts.length > 1
        ? this.#all(folder ?? alone(name, spec), parts)
        : this.#open(spec, name).then((source) => [source]),
      folder && /\.safetensors$/i.test(name) ? this.#beside(folder) : null,
    );
    if (side) this.#missed(CONFIG);
    return { ...(side ?? (await this.#besideOf(weights, folder))), weights, promised: null };
  }

  async folder(folder: Folder): Promise<ModelFiles> {
    const { names } = folder;
    if (names && !names.includes(SINGLE)) {
      if (names.includes(INDEX)) return this.#indexed(folder, INDEX);
      const weights = await this.#all(folder, onlyModel(folder.name, names));
      return { ...(await this.#besideOf(weights, folder)), weights, promised: null };
    }
    // All at once: what a server has is known only by asking. Weights in one file do not wait for an index.
    const listed = names ? null : this.#json(folder, INDEX, FILE_LIMITS.index);
    listed?.catch(() => {});
    const [single, side] = await settled(this.#optional(folder, SINGLE), this.#beside(folder));
    const index = single ? null : await listed;
    if (!single && index === null) {
      this.#missed(SINGLE);
      const cause = this.#absent.get(SINGLE);
      const reason = `${folder.name} has no ${SINGLE} and no ${INDEX}; of a GGUF give the file itself (${cause?.message})`;
      throw new EngineError("NotFound", reason, { file: SINGLE }, { cause });
    }
    this.#missed(CONFIG);
    if (single) return { ...side, weights: [single], promised: null };
    return { ...side, ...(await this.#shards(folder, readIndex(INDEX, index))) };
  }

  async adapter(folder: Folder | null, name: string | null, spec: FileSpec): Promise<ModelFiles> {
    const ggufs = folder?.names?.filter((one) => one.endsWith(".gguf")) ?? [];
    const file = name ?? (ggufs.length === 1 && !folder?.names?.includes(ADAPTER) ? ggufs[0]! : ADAPTER);
    const source =
      name === null
        ? (await this.#all(folder!, [file], FILE_LIMITS.adapter))[0]!
        : await this.#open(spec, file, FILE_LIMITS.adapter);
    const config =
      folder && (await isSafetensors(source)) ? await this.#bytes(folder, ADAPTER_CONFIG, FILE_LIMITS.config) : null;
    if (!config && (await isSafetensors(source))) {
      this.#missed(ADAPTER_CONFIG);
      const reason = `${source.name} is no adapter without ${ADAPTER_CONFIG} beside it`;
      throw new EngineError("NotFound", reason, { file: ADAPTER_CONFIG });
    }
    return { ...ALONE, config, weights: [source], promised: null };
  }

  async close(): Promise<void> {
    await Promise.all(this.#opened.map((source) => source.close()));
  }

  async #indexed(folder: Folder, name: string): Promise<ModelFiles> {
    const [index, side] = await settled(this.#json(folder, name, FILE_LIMITS.index), this.#beside(folder));
    this.#missed(name, CONFIG);
    if (index === null) throw new EngineError("NotFound", `${folder.name} has no ${name}`, { file: name });
    return { ...side, ...(await this.#shards(folder, readIndex(name, index))) };
  }

  async #shards(folder: Folder, shards: Shards): Promise<Pick<ModelFiles, "weights" | "promised">> {
    return { weights: await this.#all(folder, [...shards.keys()]), promised: [...shards.values()] };
  }

  async #open(spec: FileSpec, name: string, limits: FileLimits = FILE_LIMITS.weights): Promise<Source> {
    const source = await open(spec, this.#context, limits);
    const { integrity } = this.#context;
    const index = this.#opened.push(source) - 1;
    checkSize(name || source.name, source.size, limits.size);
    if (integrity) this.#opened[index] = checked(integrity, source, name, spec);
    return this.#opened[index]!;
  }

  /** A file that need not be there. */
  async #optional(folder: Folder, name: string, limits?: FileLimits): Promise<Source | null> {
    try {
      const spec = await folder.find(name);
      return spec && (await this.#open(spec, name, limits));
    } catch (error) {
      if (!(error instanceof EngineError) || (error.code !== "NotFound" && !hidden(error))) throw error;
      this.#absent.set(name, error);
      return null;
    }
  }

  /** Of what must be there, whose absence may be a server's secret. */
  #missed(...names: string[]): void {
    for (const [name, error] of this.#absent) if (hidden(error) && names.includes(name)) throw error;
  }

  /** All parts of a model, or an error that names those that are missing. */
  async #all(folder: Folder, names: string[], limits?: FileLimits): Promise<Source[]> {
    const found = await mapConcurrent(names, (name) => this.#optional(folder, name, limits));
    const missing = names.filter((_, i) => !found[i]);
    if (missing.length === 0) return found as Source[];
    this.#missed(...missing);
    const [first] = missing;
    const rest = missing.length > 10 ? " …" : "";
    const of = names.length > 1 ? `of the model's ${names.length} files ` : "";
    const reason = `${folder.name}: ${of}there is no ${missing.slice(0, 10).join(", ")}${rest}`;
    throw new EngineError("NotFound", reason, { file: first!, missing });
  }

  async #bytes(folder: Folder, name: string, limits: FileLimits): Promise<Uint8Array | null> {
    const source = await this.#optional(folder, name, limits);
    if (!source) return null;
    const { signal } = this.#context;
    const options = signal ? { signal } : {};
    try {
      const bytes = await source.read(0, source.size, options);
      await source.check?.(options);
      return bytes;
    } finally {
      this.#opened.splice(this.#opened.indexOf(source), 1);
      await source.close();
    }
  }

  async #json(folder: Folder, name: string, limits: FileLimits): Promise<unknown> {
    const bytes = await this.#bytes(folder, name, limits);
    if (!bytes) return null;
    try {
      const json = JSON.parse(new TextDecoder().decode(bytes));
      if (json?.constructor === Object) return json;
      throw new TypeError("it is other JSON");
    } catch (cause) {
      throw new EngineError(
        "BadHeader",
        `${name} is no JSON object: ${(cause as Error).message}`,
        { file: name },
        { cause },
      );
    }
  }

  /** A GGUF can tell everything itself. Safetensors cannot say what they are: their folder does. */
  async #besideOf([first]: Source[], folder: Folder | null): Promise<Beside> {
    if (!folder) return ALONE;
    if (await isSafetensors(first!)) return this.#beside(folder);
    return { config: null, side: () => this.#side(folder, this.#config(folder)) };
  }

  /** Begins to read all of it, and waits for the config alone. */
  async #beside(folder: Folder): Promise<Beside> {
    const config = this.#config(folder);
    const side = this.#side(folder, config);
    // A load that fails before it asks has an error already.
    side.catch(() => {});
    return { config: await config, side: () => side };
  }

  #config(folder: Folder): Promise<Uint8Array | null> {
    return this.#bytes(folder, CONFIG, FILE_LIMITS.config);
  }

  async #side(folder: Folder, reading: Promise<Uint8Array | null>): Promise<SideFiles> {
    const [config, generationConfig, tokenizer, tokenizerConfig, template] = await settled(
      reading,
      this.#json(folder, "generation_config.json", FILE_LIMITS.config),
      this.#json(folder, "tokenizer.json", FILE_LIMITS.tokenizer),
      this.#json(folder, "tokenizer_config.json", FILE_LIMITS.tokenizerConfig),
      this.#bytes(folder, "chat_template.jinja", FILE_LIMITS.template),
    );
    const chatTemplate = template && new TextDecoder().decode(template);
    return { config, generationConfig, tokenizer, tokenizerConfig, chatTemplate };
  }
}

/** As `Promise.all`, but the first error waits for the rest, so that what was opened meanwhile is known and closed. */
async function settled<T extends readonly unknown[]>(...work: T): Promise<{ -readonly [K in keyof T]: Awaited<T[K]> }> {
  const results = await Promise.allSettled(work);
  for (const result of results) if (result.status === "rejected") throw result.reason;
  return results.map((result) => (result as PromiseFulfilledResult<unknown>).value) as never;
}

/** Servers that show no lists (S3, CloudFront) forbid what is not there. */
const hidden = (error: EngineError) => error.detail.status === 403;

/** URLs escape names, and a hash may be given by either form of one. */
function checked(integrity: IntegrityChecks, source: Source, name: string, { kind }: FileSpec): Source {
  try {
    return integrity.wrap(source, name);
  } catch (error) {
    if (kind !== "url") throw error;
    return integrity.wrap(source, plain(name));
  }
}

function plain(name: string): string {
  try {
    return decodeURIComponent(name);
  } catch {
    return name;
  }
}

/** A file without neighbours as a folder of its own. */
function alone(name: string, spec: FileSpec): Folder {
  const find = async (wanted: string) => (wanted === name ? spec : null);
  return { name: "a single file was given", names: [name], find };
}

async function isSafetensors(source: Source): Promise<boolean> {
  if (source.size < 9) return false;
  const start = new TextDecoder("latin1").decode(await source.read(0, 9));
  return start.endsWith("{") && !start.startsWith("GGUF");
}
