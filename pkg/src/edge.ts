import { canRun as canRunWith, inspect as inspectWith, load as loadWith, type Outside } from "./api/model.ts";
import type { Given } from "./host/platform.ts";
import { serve } from "./host/serve.ts";
import { checked, isObject } from "./options/check.ts";
import { show } from "./options/show.ts";
import { spawnEngine } from "./platform/edge.ts";
import { type OnHub, onHub } from "./source/hub.ts";
import { EngineError } from "./types/errors.ts";
import type {
  CanRun,
  CanRunOptions,
  Description,
  InspectOptions,
  LoadOptions,
  Model,
  ModelSource,
} from "./types/index.ts";
import type { WasmModule } from "./types/web.ts";

export { repetitionScore } from "./metrics/repetition.ts";
export { jsonSchema } from "./options/json_schema.ts";
export { EngineError, type ErrorCode, type ErrorDetail } from "./types/errors.ts";
export type * from "./types/index.ts";

/** Compiled modules that the caller provides, because an edge worker may compile nothing itself. */
export interface EdgeOptions {
  /** The engine, imported as a module: `import wasm from "ternlight/single-relaxed.wasm"`, or `single-simd128.wasm`. */
  wasm: WasmModule;
  /**
   * What the options `responseFormat` and `toolChoice` need, imported as a module: `import constrain from "ternlight/constrain.wasm"`.
   * @default none
   */
  constrain?: WasmModule | undefined;
}

/** There is one thread, and the build is the one given: neither can be chosen. */
export type EdgeLoadOptions = Omit<LoadOptions, "threads" | "flavour"> & EdgeOptions;

/**
 * Loads a model into this thread, where there are no workers.
 *
 * @param source where its bytes are: a URL, a file, a folder
 * @param given the compiled engine, and the options of a load
 * @throws {EngineError} as `load` of `ternlight`; `InvalidArgument` also where `wasm` is another module
 */
export async function load(source: ModelSource, given: EdgeLoadOptions): Promise<Model> {
  const { wasm, constrain, ...options } = some(given);
  return loadWith(outside(wasm, options, constrain), source, { ...options, ...unmeasured(options) });
}

/**
 * What is measured elsewhere: the clock of an edge worker stands still between two events. Weights that are loaded ahead cost an AMD Zen 5 a
 * third of the decode speed of models that fit there (benches/results/variants.md, "Edge workers"); Intel's gain with larger ones.
 */
const unmeasured = ({ weightPrefetch = "auto" }: LoadOptions): LoadOptions =>
  weightPrefetch === "auto" ? { weightPrefetch: "off" } : {};

/**
 * Tells what a model is from its header, without loading it.
 *
 * @throws {EngineError} as `load`
 */
export async function inspect(source: ModelSource, given: InspectOptions & EdgeOptions): Promise<Description> {
  const { wasm, constrain, ...options } = some(given);
  return inspectWith(outside(wasm, options, constrain), source, options);
}

/**
 * Tells from its header whether a model fits in memory with these options, and if not, the nearest ones with which it does.
 *
 * @throws {EngineError} as `load`; a model that does not fit is no error here
 */
export async function canRun(
  source: ModelSource,
  given: EdgeLoadOptions & Pick<CanRunOptions, "memory">,
): Promise<CanRun> {
  const { wasm, constrain, ...options } = some(given);
  return canRunWith(outside(wasm, options, constrain), source, options);
}

/** The options are required here. */
function some<T extends object>(options: T): T {
  return checked("ternlight/edge", "options", isObject, options);
}

function outside(wasm: WebAssembly.Module, options: LoadOptions, constrain?: WebAssembly.Module): Outside {
  const given: Given = { module: wasm, features: features(wasm) };
  if (constrain !== undefined) {
    if (flavour(constrain) !== "constrain")
      throw wrong("constrain", "the compiled module of constrain.wasm", constrain);
    given.constrain = constrain;
  }
  for (const option of ["threads", "flavour"] as const) {
    if (options[option] === undefined) continue;
    throw new EngineError("InvalidArgument", `${option}: here it is what wasm is built for`, { option });
  }
  const byName: OnHub = (name, { signal }, work) => onHub(name, { signal }, work);
  // Service workers and shared workers have an address; edge runtimes have none, and no paths either.
  const base = globalThis.location?.href ?? null;
  return { spawnEngine: () => spawnEngine(given, serve), base, onHub: byName };
}

/** What this runtime can do, from the module that it has compiled. Each build names itself in a custom section. */
function features(wasm: WebAssembly.Module): Given["features"] {
  const found = flavour(wasm);
  if (found !== "single-relaxed" && found !== "single-simd128") {
    throw wrong("wasm", "the compiled module of single-relaxed.wasm or single-simd128.wasm", wasm);
  }
  const relaxed = found === "single-relaxed" ? "exact" : "absent";
  return { simd128: true, relaxed, unshared: "an edge worker has one thread" };
}

function flavour(wasm: unknown): string {
  const [name] = wasm instanceof WebAssembly.Module ? WebAssembly.Module.customSections(wasm, "flavour") : [];
  return name ? new TextDecoder().decode(name) : show(wasm);
}

function wrong(option: string, expected: string, wasm: unknown): EngineError {
  const found = flavour(wasm);
  return new EngineError("InvalidArgument", `${option} must be ${expected}, not ${found}`, { option, expected, found });
}
