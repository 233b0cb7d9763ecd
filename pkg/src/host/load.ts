/** A load inside the worker: headers, a plan, an instance with memory for it, chunks, an engine. */

import { openCached } from "../cache/open.ts";
import type { EngineSettings, LoadSettings } from "../rpc/protocol.ts";
import { type ModelFiles, openFiles } from "../source/files.ts";
import { IntegrityChecks } from "../source/integrity.ts";
import type { OpenContext } from "../source/open.ts";
import type { Source } from "../source/source.ts";
import type { SourceSpec } from "../source/spec.ts";
import { EngineError } from "../types/errors.ts";
import type { CanRun, Description, MemoryNeeds, ModelInfo, Progress, SourceOptions } from "../types/index.ts";
import { builds } from "../wasm/builds.ts";
import { probe } from "../wasm/features.ts";
import { type Build, compile, type Glue, type Instance, instantiate } from "../wasm/load.ts";
import { type Pick, pick } from "../wasm/pick.ts";
import { Pool } from "../wasm/threads.ts";
import { fit, instanceBytes, room } from "./fit.ts";
import { type Headers, named, readHeaders } from "./headers.ts";
import type { Platform } from "./platform.ts";
import { join, readAll, type Span } from "./spans.ts";
import { loadText, type Text } from "./text.ts";
import type { Timeline } from "./timeline.ts";

/** What instances need of whoever holds them. */
export interface Host {
  platform: Platform;
  signal: AbortSignal;
  /** An instance that was loaded before dies: its threads are gone. */
  onDeath(error: EngineError): void;
}

export interface LoadContext extends Host {
  onProgress(progress: Progress): void;
  timeline?: Timeline | undefined;
}

export interface Loaded {
  engine: Glue["Engine"]["prototype"];
  text: Text;
  info: ModelInfo;
  memory: WebAssembly.Memory;
  glue: Glue;
  /** What adapters may take of the memory. */
  adapterBytes: number;
}

/** What a header's parser may hold: the longest header some times over. */
const PLANNER_BYTES = 1 << 30;
/** Of a chunk on its way into the engine. */
const CHUNK = 2 << 20;

export async function load(source: SourceSpec, settings: LoadSettings, context: LoadContext): Promise<Loaded> {
  const { platform, timeline } = context;
  const { choice, kernel, chatTemplate, engineSettings } = choose(settings, platform);
  const { adapterBytes = ADAPTER_BYTES } = settings;
  let begun = performance.now();
  const phase = (name: string, facts?: object) => {
    timeline?.add("load", name, begun, facts);
    begun = performance.now();
  };
  const runtime = await Runtime.start(choice, context);
  phase("compile", { flavour: choice.flavour });
  const warnings: string[] = [];
  const open = (fresh: boolean) => {
    warnings.length = 0;
    return openingOf(settings, context, (message) => warnings.push(message), fresh);
  };
  const attempt = async (files: ModelFiles): Promise<Loaded> => {
    const planner = await runtime.planner();
    const headers = await readHeaders(planner.glue, files, context.signal);
    phase("header", { bytes: headers.length });
    const { needed: memory, ...verdict } = weigh(planner.glue, headers, settings, null);
    if (!verdict.ok) {
      const { available, suggestion, reason } = verdict;
      throw new EngineError("OutOfMemory", reason!, { needed: memory.total, available, suggestion });
    }
    // The text's own work goes on while the weights come.
    const text = loadText(headers.metadata, headers.prefix, files, chatTemplate);
    const reading = performance.now();
    text.then(
      () => timeline?.add("tokenizer", "tokenizer", reading),
      () => {},
    );

    const { glue, memory: bytes } = await runtime.instance(memory.total + adapterBytes, headers);
    begun = performance.now();
    if (choice.threads > 1) await glue.initThreadPool?.(choice.threads - 1);
    phase("threads", { threads: choice.threads });
    const loader = await feed(glue, bytes, headers, files, engineSettings, { threads: choice.threads }, context);
    for (const file of files.weights) await file.check?.({ signal: context.signal });
    context.signal.throwIfAborted();
    begun = performance.now();
    const engine = loader.finish();
    const description = engine.describe() as Description;
    phase("engine", { bytes: memory.total });
    const loaded = await text;
    const info: ModelInfo = {
      ...description,
      ...loaded.describe(),
      warnings: [...description.warnings, ...loaded.warnings, ...warnings],
      vocab: description.config.vocab,
      contextLength: engine.contextLength,
      kv: engine.kv as ModelInfo["kv"],
      flavour: choice.flavour,
      kernel: glue.dots(kernel) as ModelInfo["kernel"],
      threads: choice.threads,
      threadsReason: choice.threadsReason,
      memoryBytes: bytes.buffer.byteLength,
    };
    context.onProgress({ phase: "ready", loaded: memory.weights, total: memory.weights, bytesPerSecond: 0 });
    return { engine, text: loaded, info, memory: bytes, glue, adapterBytes };
  };
  const work = (files: ModelFiles) =>
    attempt(files).catch((error) => {
      runtime.end();
      throw error;
    });
  return anew(open, (opening) => withFiles(source, opening, context, work));
}

/** What one file is found to be by itself, which may be its copy's fault. */
const CONTENT = /^(Bad(Magic|Header|Value|Tokenizer)|MissingKey|Unsupported(Version|Type))$/;

/**
 * Begins once more with what the server has now, and without what was kept and is wrong: what makes no model is not kept, whoever
 * sent it.
 */
export async function anew<T>(
  open: (fresh: boolean) => Promise<OpenContext>,
  work: (opening: OpenContext) => Promise<T>,
  fresh = false,
): Promise<T> {
  const opening = await open(fresh);
  try {
    const made = await work(opening);
    await opening.dropEarlier?.();
    return made;
  } catch (error) {
    const { code = "", detail } = error as Partial<EngineError>;
    const file = detail?.file ?? (code === "BadTokenizer" ? "tokenizer.json" : undefined);
    const old = file !== undefined && CONTENT.test(code) ? await opening.forget?.(file) : detail?.kept;
    if (fresh || !(code === "SourceChanged" || old)) throw error;
    return anew(open, work, true);
  }
}

/** Unless it is said. Where memory has a limit from the beginning this is address space alone. */
const ADAPTER_BYTES = 128 << 20;

/** How this load's files are opened. Where nothing can be kept, nothing is; where it was asked for, that is said. */
export async function openingOf(
  settings: SourceOptions,
  context: LoadContext,
  warn: (message: string) => void,
  fresh: boolean,
): Promise<OpenContext> {
  const { cache = true, verify, integrity, connections } = settings;
  const { platform, signal } = context;
  const http = connections ? { connections } : {};
  const opening: OpenContext = { paths: platform.paths, signal, http };
  if (integrity !== undefined) opening.integrity = new IntegrityChecks(integrity, platform.hasher);
  if (cache === false) return opening;
  try {
    if (!platform.openStore) throw new Error("this runtime has no storage, or not in a page that is not secure");
    const store = await platform.openStore(typeof cache === "string" ? cache : undefined);
    const cached = { store, verify: verify === "always", http, signal, warn, fresh };
    const opened: Source[] = [];
    opening.url = async (spec, limits) => {
      const source = await openCached(spec, cached, limits);
      opened.push(source);
      return source;
    };
    opening.forget = async (file) => {
      // Errors have a file's address, or its name in its folder; what is another's is left alone.
      const wrong = opened.filter(({ name }) => name === file || name.replace(/[?#].*/s, "").endsWith(`/${file}`));
      const old = await Promise.all(wrong.map((source) => source.forget?.()));
      return old.includes(true);
    };
    opening.dropEarlier = async () => {
      for (const source of opened) await source.dropEarlier?.();
    };
  } catch (error) {
    if (settings.cache) warn(`nothing is kept in a cache: ${(error as Error).message}`);
  }
  return opening;
}

/** What `canRun` tells, from the header alone. */
export async function canRun(source: SourceSpec, settings: LoadSettings, context: LoadContext): Promise<CanRun> {
  const { platform, signal } = context;
  const { choice } = choose(settings, platform);
  const runtime = await Runtime.start(choice, context);
  return withFiles(source, { paths: platform.paths, signal }, context, async (files) => {
    const { glue } = await runtime.planner();
    const headers = await readHeaders(glue, files, signal);
    return weigh(glue, headers, settings, platform.freeMemory());
  });
}

const featuresOf = ({ given }: Platform) => given?.features ?? probe();

/** The build that these settings run on, and what is left of them for the engine. */
export function choose(settings: LoadSettings, platform: Platform) {
  const { threads, flavour, kernel = "auto", chatTemplate } = settings;
  const wish = { ...(threads ? { threads } : {}), ...(flavour ? { flavour } : {}) };
  const choice = pick(featuresOf(platform), platform.cores(), wish);
  return { choice, kernel, chatTemplate, engineSettings: forPlan(settings) };
}

/** What of them a plan depends on. */
function forPlan(settings: LoadSettings): EngineSettings {
  const { threads, flavour, kernel, chatTemplate, spans, adapterBytes, ...others } = settings;
  const { cache, verify, integrity, connections, ...rest } = others;
  return rest;
}

function weigh(glue: Glue, headers: Headers, asked: LoadSettings, free: number | null): CanRun {
  const settings = forPlan(asked);
  const plan = (settings: EngineSettings) => {
    const loader = new glue.Loader(headers.checkpoint, settings);
    const memory = loader.memory() as MemoryNeeds;
    loader.free();
    return memory;
  };
  const { config } = headers.checkpoint.describe(settings) as Description;
  return fit(plan, settings, config.contextLength, room(headers.length, free, asked.adapterBytes));
}

/** What `inspect` tells: the header alone, or the weights too. Nothing is kept. */
export async function inspect(
  source: SourceSpec,
  settings: EngineSettings,
  weights: boolean,
  context: LoadContext,
): Promise<Description> {
  const choice = pick(featuresOf(context.platform), 1, { threads: 1 });
  const runtime = await Runtime.start(choice, context);
  const { platform, signal } = context;
  return withFiles(source, { paths: platform.paths, signal }, context, async (files) => {
    const { glue, memory } = await runtime.planner();
    const headers = await readHeaders(glue, files, signal);
    const loader = weights
      ? await feed(glue, memory, headers, files, settings, { survey: true }, context)
      : new glue.Loader(headers.checkpoint, settings);
    const description = loader.describe() as Description;
    const text = await loadText(headers.metadata, headers.prefix, files);
    return { ...description, ...text.describe(), warnings: [...description.warnings, ...text.warnings] };
  });
}

async function withFiles<T>(
  spec: SourceSpec,
  opening: OpenContext,
  context: LoadContext,
  work: (files: ModelFiles) => Promise<T>,
): Promise<T> {
  context.onProgress({ phase: "header", loaded: 0, total: 0, bytesPerSecond: 0 });
  const files = await openFiles(spec, opening);
  try {
    return await work(files);
  } finally {
    await Promise.all(files.weights.map((source) => source.close()));
  }
}

/** The chosen build, compiled once, and its instances. */
export class Runtime {
  readonly #build: Build;
  readonly #module: WebAssembly.Module;
  readonly #makePool: () => Pool;
  readonly #shared: boolean;
  #first: Instance | null = null;
  /** Of the newest instance. */
  #pool: Pool | null = null;

  private constructor(build: Build, module: WebAssembly.Module, makePool: () => Pool) {
    this.#build = build;
    this.#module = module;
    this.#makePool = makePool;
    this.#shared = build.initialPages > 0;
  }

  static async start(choice: Pick, { platform, onDeath }: Host): Promise<Runtime> {
    const build = builds[choice.flavour] as Build;
    const module = platform.given?.module ?? (await compile(build.url(), platform.fetchFile));
    return new Runtime(build, module, () => new Pool(choice.flavour, platform.spawnSibling, onDeath));
  }

  /** An instance that reads headers. */
  async planner(): Promise<Instance> {
    this.#first ??= this.#make(PLANNER_BYTES);
    return this.#first;
  }

  /**
   * An instance with room for a model. A memory that is shared must say its limit before it exists: the planner made a plan
   * in a small one. Any other grows, and the planner's own instance goes on.
   */
  async instance(modelBytes: number, headers: Headers): Promise<Instance> {
    if (!this.#shared) return this.planner();
    const instance = this.#make(instanceBytes(modelBytes, headers.length));
    headers.checkpoint.free();
    headers.checkpoint = await headers.again(instance.glue);
    return instance;
  }

  /** Ends the threads of the newest instance, which would keep its memory. */
  end(): void {
    this.#pool?.end();
  }

  #make(maximumBytes: number): Instance {
    this.#pool = this.#makePool();
    return instantiate(this.#build, this.#module, { maximumBytes, host: this.#pool });
  }
}

async function feed(
  glue: Glue,
  memory: WebAssembly.Memory,
  headers: Headers,
  files: ModelFiles,
  settings: EngineSettings,
  how: { survey?: boolean; threads?: number },
  context: LoadContext,
): Promise<Glue["Loader"]["prototype"]> {
  const { signal, onProgress, timeline } = context;
  const begun = performance.now();
  const loader = new glue.Loader(headers.checkpoint, settings);
  loader.decide(await readAll(loader.probes() as Span[], files, signal));
  const spans = join(loader.ranges() as Span[]);
  loader.reserve(how.survey ?? false, how.threads ?? 1);
  timeline?.add("load", "plan", begun);

  const total = spans.reduce((sum, span) => sum + span.length, 0);
  const chunk = Math.min(CHUNK, total);
  const meter = new Meter(total, onProgress);
  const reading = performance.now();
  // What has come of a chunk, and where it lies. While some are packed the next one comes.
  let [file, at, came, waited] = [0, 0, 0, 0];
  function flush() {
    const since = performance.now();
    if (came > 0) loader.feed(file, at, came);
    at += came;
    came = 0;
    waited += performance.now() - since;
  }
  try {
    for (const span of spans) {
      const source = files.weights[span.file]!;
      [file, at] = [span.file, span.offset];
      await named(source, async () => {
        for await (const piece of source.stream(span.offset, span.length, { signal })) {
          for (let from = 0; from < piece.length; ) {
            const part = piece.subarray(from, from + chunk - came);
            const address = loader.buffer(chunk);
            new Uint8Array(reaching(memory, address + chunk), address + came, part.length).set(part);
            from += part.length;
            came += part.length;
            if (came === chunk) flush();
          }
          signal.throwIfAborted();
          meter.add(piece.length);
        }
        flush();
        loader.settle();
      });
    }
  } catch (error) {
    loader.free();
    // The probed rows promised what a later row does not keep. As stored, any file fits.
    if (settings.layout !== "stored" && (error as { code?: string }).code === "LayoutContradicted") {
      return feed(glue, memory, headers, files, { ...settings, layout: "stored" }, how, context);
    }
    throw error;
  }
  timeline?.add("load", "read and pack", reading, { bytes: total, "waited for packing, ms": waited.toFixed(1) });
  onProgress({ phase: "pack", loaded: total, total, bytesPerSecond: meter.rate });
  return loader;
}

/** The memory's bytes up to an address. Old views are gone when it grows; a growth by another thread shows only when asked. */
function reaching(memory: WebAssembly.Memory, end: number): ArrayBufferLike {
  if (memory.buffer.byteLength < end) memory.grow(0);
  return memory.buffer;
}

/** Progress at most every 50 ms, with the rate over about a second. */
class Meter {
  readonly #total: number;
  readonly #report: (progress: Progress) => void;
  #loaded = 0;
  #told = 0;
  #marks: { at: number; loaded: number }[] = [{ at: performance.now(), loaded: 0 }];

  constructor(total: number, report: (progress: Progress) => void) {
    this.#total = total;
    this.#report = report;
    this.#tell(performance.now());
  }

  get rate(): number {
    const [first, last] = [this.#marks[0]!, this.#marks.at(-1)!];
    return last.at > first.at ? ((last.loaded - first.loaded) * 1000) / (last.at - first.at) : 0;
  }

  add(bytes: number): void {
    this.#loaded += bytes;
    const now = performance.now();
    if (now - this.#told < 50 && this.#loaded < this.#total) return;
    this.#marks.push({ at: now, loaded: this.#loaded });
    while (this.#marks.length > 2 && now - this.#marks[0]!.at > 1000) this.#marks.shift();
    this.#tell(now);
  }

  #tell(now: number): void {
    this.#told = now;
    this.#report({ phase: "download", loaded: this.#loaded, total: this.#total, bytesPerSecond: this.rate });
  }
}
