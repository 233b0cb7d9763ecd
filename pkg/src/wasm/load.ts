import { EngineError } from "../types/errors.ts";

type Bindings = typeof import("../../dist/glue/bindings.d.ts");
type OnlyWithThreads = "initThreadPool" | "wbg_rayon_start_worker";

/** What wasm-bindgen made for one instance: the engine's classes and functions. */
export type Glue = Omit<Bindings, "default" | OnlyWithThreads> & Partial<Pick<Bindings, OnlyWithThreads>>;

/** What the glue needs from the code that creates it. */
export interface GlueHost {
  startWorkers(module: WebAssembly.Module, memory: WebAssembly.Memory, builder: PoolBuilder): Promise<void>;
}
export type PoolBuilder = Bindings["wbg_rayon_PoolBuilder"]["prototype"];

/** One flavour. Each glue it creates has its own variables, so one module serves several instances. */
export interface Build {
  createGlue(host: GlueHost): Glue;
  /** The initial size of the memory that the module imports; 0 where it has its own. */
  initialPages: number;
  url(): URL;
}

/** How a file of this package comes: as a server's answer, or from a disk as its bytes. */
export type FetchFile = (url: URL) => Promise<Response | Uint8Array<ArrayBuffer>>;

/**
 * Fetches and compiles; streaming where the runtime can and the server names the right type. A file is never streamed:
 * its bytes come at once, so nothing is gained, and V8 goes on validating a streamed module after the worker that
 * compiles it was ended, in memory that is freed by then. Node 20 to 26 die of that by a signal.
 */
export async function compile(url: URL, fetchFile: FetchFile): Promise<WebAssembly.Module> {
  const answer = await fetchFile(url).catch((cause) => {
    throw new EngineError("Network", `could not fetch ${url}: ${message(cause)}`, { file: url.href }, { cause });
  });
  const response = answer instanceof Uint8Array ? null : answer;
  if (response && !response.ok) {
    const code = response.status === 404 ? "NotFound" : "Network";
    throw new EngineError(code, `could not fetch ${url}: HTTP ${response.status}`, { file: url.href });
  }
  const type = response?.headers.get("content-type") ?? "";
  const typed = !response || type.toLowerCase() === "application/wasm";
  try {
    if (response && typed && "compileStreaming" in WebAssembly) return await WebAssembly.compileStreaming(response);
    return await WebAssembly.compile(answer instanceof Uint8Array ? answer : await answer.arrayBuffer());
  } catch (cause) {
    // Servers of single-page apps answer any path with their HTML; a content security policy may forbid wasm.
    const hint = typed ? "" : ` (served as ${type || "no type"}, expected application/wasm)`;
    throw new EngineError(
      "WorkerFailed",
      `could not compile ${url}${hint}: ${message(cause)}`,
      { file: url.href },
      { cause },
    );
  }
}

export interface InstanceOptions {
  /** The most memory that this instance may ever hold. Builds without threads have no limit but the 4 GiB of wasm32. */
  maximumBytes: number;
  host: GlueHost;
}

export interface Instance {
  glue: Glue;
  memory: WebAssembly.Memory;
}

/** One more instance of a build. */
export function instantiate(build: Build, module: WebAssembly.Module, options: InstanceOptions): Instance {
  const glue = build.createGlue(options.host);
  const shared = build.initialPages > 0 && { memory: sharedMemory(build.initialPages, options.maximumBytes) };
  const { memory } = glue.initSync({ module, ...shared });
  return { glue, memory };
}

const PAGE = 65536;
const MAX_PAGES = 65536;

/** Reserves the address space at once; the system provides pages as they are used. */
function sharedMemory(initial: number, maximumBytes: number): WebAssembly.Memory {
  const maximum = Math.min(Math.max(Math.ceil(maximumBytes / PAGE), initial), MAX_PAGES);
  try {
    return new WebAssembly.Memory({ initial, maximum, shared: true });
  } catch (cause) {
    const needed = maximum * PAGE;
    throw new EngineError("OutOfMemory", `no room for ${needed} bytes of shared memory`, { needed }, { cause });
  }
}

const message = (error: unknown) => (error instanceof Error ? error.message : String(error));
