/** Which build of the engine runs, and its instances. */

import { planOptions } from "../options/routes.ts";
import type { EngineSettings, LoadSettings } from "../rpc/protocol.ts";
import { builds } from "../wasm/builds.ts";
import { type Features, probe } from "../wasm/features.ts";
import { type Build, compile, type Instance, instantiate } from "../wasm/load.ts";
import { type BuildChoice, pick } from "../wasm/pick.ts";
import { Pool, Workers } from "../wasm/threads.ts";
import type { InstanceContext } from "./context.ts";
import { instanceBytes } from "./fit.ts";
import type { Platform } from "./platform.ts";

/** Address space of an instance that parses headers: the longest header several times over. */
const PLANNER_BYTES = 1 << 30;

export const featuresOf = ({ given }: Platform): Features => given?.features ?? probe();

/** The build and the threads that these settings run on. */
export function choose({ threads, flavour }: LoadSettings, platform: Platform): BuildChoice {
  const wish = { ...(threads ? { threads } : {}), ...(flavour ? { flavour } : {}) };
  return pick(featuresOf(platform), platform.cores(), wish, platform.wholeCores?.());
}

/** The settings that a plan depends on. */
export function forPlan(settings: LoadSettings): EngineSettings {
  const given = planOptions.filter((name) => settings[name] !== undefined);
  return Object.fromEntries(given.map((name) => [name, settings[name]]));
}

/** The chosen build, compiled once, and its instances. */
export class Runtime {
  readonly #build: Build;
  readonly #module: WebAssembly.Module;
  readonly #makePool: () => Pool;
  readonly #workers: Workers;
  readonly #shared: boolean;
  #first: Instance | null = null;
  /** The threads of each instance. */
  readonly #pools: Pool[] = [];

  private constructor(build: Build, module: WebAssembly.Module, workers: Workers, makePool: () => Pool) {
    this.#build = build;
    this.#module = module;
    this.#workers = workers;
    this.#makePool = makePool;
    this.#shared = build.initialPages > 0;
  }

  /** @param early workers for threads that are started while the build is compiled */
  static async start(
    choice: BuildChoice,
    { platform, onFatal, threads }: InstanceContext,
    early = 0,
  ): Promise<Runtime> {
    const build = builds[choice.flavour] as Build;
    const workers = new Workers(platform.spawnThread ?? platform.spawnSibling);
    workers.start(early);
    try {
      const module = platform.given?.module ?? (await compile(build.url(), platform.fetchFile));
      return new Runtime(build, module, workers, () => new Pool(choice.flavour, workers, onFatal, threads));
    } catch (error) {
      workers.end();
      throw error;
    }
  }

  /** An instance that reads headers. */
  planner(): Instance {
    this.#first ??= this.#make(PLANNER_BYTES);
    return this.#first;
  }

  /**
   * An instance with room for a model. A shared memory needs its limit before it exists, so the plan was made in a small one and
   * the model gets another. Any other memory grows, and the planner's own instance continues with the first part: the same object is
   * returned.
   */
  instance(modelBytes: number, headerBytes: number, part: number): Instance {
    return this.#shared || part > 0 ? this.#make(instanceBytes(modelBytes, headerBytes)) : this.planner();
  }

  /** Ends all threads: they would keep an instance's memory alive. */
  end(): void {
    for (const pool of this.#pools) pool.end();
    this.#workers.end();
  }

  #make(maximumBytes: number): Instance {
    const pool = this.#makePool();
    this.#pools.push(pool);
    return instantiate(this.#build, this.#module, { maximumBytes, host: pool });
  }
}
