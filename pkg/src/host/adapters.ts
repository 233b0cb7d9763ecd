/** The adapters of a loaded model, by name. */

import type { AdapterSettings } from "../rpc/protocol.ts";
import { openAdapter } from "../source/files.ts";
import type { OpenContext } from "../source/open.ts";
import type { SourceSpec } from "../source/spec.ts";
import { EngineError } from "../types/errors.ts";
import type { AdapterInfo, AdapterUse } from "../types/index.ts";
import type { Glue } from "../wasm/load.ts";
import type { LoadContext, Loaded } from "./context.ts";
import { named, readHeaders } from "./headers.ts";
import { openingOf, retryFresh } from "./opening.ts";
import { readAll, type Span } from "./spans.ts";

type AdapterLoader = Glue["AdapterLoader"]["prototype"];

/** Bytes of a header: enough for adapters of a thousand layers. It is parsed beside the model, in the slack of its memory. */
const MAX_HEADER = 4 << 20;
/** Bytes that are packed between two reads of the messages. */
const YIELD_BYTES = 4 << 20;

export class Adapters {
  readonly #loaded: Loaded;
  /** The engine's numbers and the sizes of adapters by name; null while one is being loaded. */
  readonly #known = new Map<string, { id: number; bytes: number } | null>();
  #bytes = 0;

  constructor(loaded: Loaded) {
    this.#loaded = loaded;
  }

  /** The names of those that can be used. */
  get names(): string[] {
    return [...this.#known].flatMap(([name, known]) => (known ? [name] : []));
  }

  load(source: SourceSpec, settings: AdapterSettings, context: LoadContext): Promise<AdapterInfo> {
    return retryFresh(
      (trust) => openingOf(settings, context, () => {}, trust),
      (opening) => this.#load(source, settings, opening, context),
    );
  }

  async #load(
    source: SourceSpec,
    settings: AdapterSettings,
    opening: OpenContext,
    { signal, platform }: LoadContext,
  ): Promise<AdapterInfo> {
    const { parts: places } = this.#loaded;
    const files = await openAdapter(source, opening);
    const [file] = files.weights;
    const name = settings.name ?? files.name;
    let reserved = 0;
    let id: number | null = null;
    if (this.#known.has(name)) {
      await file!.close();
      throw wrong("name", `there is an adapter of this name: ${JSON.stringify(name)}`);
    }
    this.#known.set(name, null);
    try {
      const headers = await readHeaders(places[0].glue, files, signal, MAX_HEADER);
      const loaders: AdapterLoader[] = [];
      try {
        for (const [i, { glue, engine }] of places.entries()) {
          const checkpoint = i === 0 ? headers.checkpoint : await headers.again(glue);
          loaders.push(await named(file!, async () => new glue.AdapterLoader(checkpoint, engine)));
          checkpoint.free();
        }
        const [bytes, rank, matrices] = loaders[0]!.summary() as unknown as [number, number, number];
        this.#reserve(bytes);
        reserved = bytes;
        const parts = await readAll(loaders[0]!.ranges() as Span[], files, signal);
        await file!.check?.({ signal });
        await opening.confirm?.();
        let since = 0;
        await named(file!, async () => {
          for (const [index, part] of parts.entries()) {
            for (const loader of loaders) loader.feed(index, part);
            since += part.length;
            if (since < YIELD_BYTES) continue;
            since = 0;
            await platform.turn();
            signal.throwIfAborted();
          }
        });
        // Every part knows it by the number that it has in the first.
        for (const [i, { engine }] of places.entries()) id = loaders[i]!.finish(engine, id ?? 0);
        this.#known.set(name, { id: id!, bytes });
        return { name, format: headers.metadata ? "gguf" : "safetensors", rank, matrices, bytes };
      } catch (error) {
        for (const loader of loaders) loader.free();
        throw error;
      }
    } catch (error) {
      this.#known.delete(name);
      this.#bytes -= reserved;
      throw error;
    } finally {
      await file!.close();
    }
  }

  unload(name: string): null {
    const { id, bytes } = this.#find(name);
    this.#loaded.engine.removeAdapter(id);
    this.#known.delete(name);
    this.#bytes -= bytes;
    return null;
  }

  /** Adapters in the engine's form: numbers and scales alternate. */
  flat(uses: readonly AdapterUse[]): Float64Array {
    return Float64Array.from(uses.flatMap(({ name, scale = 1 }) => [this.#find(name).id, scale]));
  }

  #find(name: string): { id: number; bytes: number } {
    const known = this.#known.get(name);
    if (known) return known;
    const there = [...this.#known.keys()].map((name) => JSON.stringify(name)).join(", ");
    throw wrong("adapters", `there is no adapter ${JSON.stringify(name)}, but ${there || "none at all"}`);
  }

  #reserve(bytes: number): void {
    const available = this.#loaded.maxAdapterBytes - this.#bytes;
    if (bytes > available) {
      const detail = { needed: bytes, available, option: "maxAdapterBytes" };
      const reason = `the adapter needs ${bytes} bytes; ${available} are left of what maxAdapterBytes reserved`;
      throw new EngineError("OutOfMemory", reason, detail);
    }
    this.#bytes += bytes;
  }
}

const wrong = (option: string, reason: string) => new EngineError("InvalidArgument", reason, { option });
