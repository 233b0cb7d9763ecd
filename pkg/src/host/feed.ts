/** Feeds a plan's bytes into an instance, which packs them while the next ones come. */

import type { EngineSettings } from "../rpc/protocol.ts";
import type { ModelFiles } from "../source/files.ts";
import type { Part } from "../split/plan.ts";
import type { Description } from "../types/info.ts";
import type { Instance } from "../wasm/load.ts";
import type { LoadContext } from "./context.ts";
import type { Headers } from "./headers.ts";
import { Meter } from "./meter.ts";
import { type Loader, ofLayers } from "./plan.ts";
import { Prefilling } from "./prefill.ts";
import { join, readAll, type Span, streamAll } from "./spans.ts";

/** Bytes that are packed at a time. */
const CHUNK = 2 << 20;
/** The same where layers are awaited. */
const CHUNK_AWAITED = 256 << 10;

export interface ExpectedPrompt {
  /** Known when the tokenizer is there. */
  ids: Promise<readonly number[]>;
  mostTokens: number;
  /** Whether the weights are read in order of execution, because that of the files would have the layers wait. */
  reorders: boolean;
}

/** Where a part of a model goes. */
export interface Place {
  instance: Instance;
  /** Parsed in this instance. */
  checkpoint: Headers["checkpoint"];
  /** Those of a part; absent where all are here. */
  layers?: Part["layers"];
  /** A loader that was made in this instance already. */
  loader?: Loader | undefined;
}

export interface Intake {
  places: readonly Place[];
  files: ModelFiles;
  settings: EngineSettings;
  /** Keep nothing of the weights, and count zeros instead. */
  survey?: boolean;
  /** Threads of the instance, the engine's own included. @default 1 */
  threads?: number;
  /** How an earlier load has found that ternary weights are best packed. */
  packing?: Description["ternaryPacking"];
  /** A prompt to compute while the weights come. */
  prompt?: ExpectedPrompt | undefined;
}

/** Reads all weights, so many bytes. The loaders that are returned, one for each place, hold them, packed. */
export async function feed(intake: Intake, context: LoadContext): Promise<{ loaders: Loader[]; bytes: number }> {
  const { places, settings } = intake;
  const loaders = places.map(
    ({ instance, checkpoint, layers, loader }) =>
      loader ?? new instance.glue.Loader(checkpoint, ofLayers(settings, layers)),
  );
  try {
    return { loaders, bytes: await fill(loaders, intake, context) };
  } catch (error) {
    for (const loader of loaders) loader.free();
    const contradicted = (error as { code?: string }).code === "LayoutContradicted";
    if (!contradicted || settings.repack === false) throw error;
    // A later row contradicts what the probed rows showed of the layout. As it is stored, any file fits.
    const again = places.map((place) => ({ ...place, loader: undefined }));
    return feed({ ...intake, places: again, settings: { ...settings, repack: false } }, context);
  }
}

async function fill(
  loaders: readonly Loader[],
  { places, files, survey = false, threads = 1, packing, prompt }: Intake,
  { platform, signal, onProgress, timeline }: LoadContext,
): Promise<number> {
  const begun = performance.now();
  let loader = loaders[0]!;
  if (prompt) loader.expectPrefill(prompt.mostTokens);
  // Every part is packed as what is probed in the whole model says.
  const rows = await readAll(loader.probes() as Span[], files, signal);
  for (const loader of loaders) loader.decide(rows);
  const spans = spansOf(loaders, prompt?.reorders ?? false);
  for (const loader of loaders) loader.reserve(survey, threads, packing && packing === "1.6-bit");
  timeline?.add("load", "plan", begun);

  let { memory } = places[0]!.instance;
  const prefilling = prompt && new Prefilling({ loader, ids: prompt.ids, threads, turn: platform.turn }, signal);
  const total = spans.reduce((sum, span) => sum + span.length, 0);
  const chunk = Math.min(prompt ? CHUNK_AWAITED : CHUNK, total);
  const meter = new Meter(total, onProgress);
  const reading = performance.now();
  // The chunk that is being filled: where it begins in its file, and how many of its bytes have come.
  let [file, at, came, waited] = [0, 0, 0, 0];
  const flush = () => {
    const since = performance.now();
    if (came > 0) loader.feed(file, at, came);
    [at, came] = [at + came, 0];
    waited += performance.now() - since;
  };
  const reader = {
    begin(span: Span & { place: number }) {
      [file, at] = [span.file, span.offset];
      loader = loaders[span.place]!;
      ({ memory } = places[span.place]!.instance);
    },
    piece(bytes: Uint8Array) {
      prefilling?.came(bytes.length);
      for (let from = 0; from < bytes.length; ) {
        const part = bytes.subarray(from, from + chunk - came);
        const address = loader.buffer(chunk);
        new Uint8Array(reaching(memory, address + chunk), address + came, part.length).set(part);
        from += part.length;
        came += part.length;
        if (came === chunk) flush();
      }
      meter.add(bytes.length);
    },
    end() {
      flush();
      loader.settle();
    },
  };
  await streamAll(spans, files, prefilling?.signal ?? signal, reader).finally(() => {
    meter.stop();
    prefilling?.end();
  });
  timeline?.add("load", "read and pack", reading, { bytes: total, "waited for packing, ms": waited.toFixed(1) });
  meter.end("pack");
  return total;
}

/** What is read for each place, in the order of the files, or of one place in order of execution. */
function spansOf(loaders: readonly Loader[], inTurn: boolean): (Span & { place: number })[] {
  const spans = loaders.flatMap((loader, place) =>
    join(loader.ranges(inTurn) as Span[]).map((span) => ({ ...span, place })),
  );
  return inTurn ? spans : spans.sort((a, b) => a.file - b.file || a.offset - b.offset);
}

/** The memory's bytes up to an address. Growth detaches old views, and a growth by another thread shows only after a call. */
function reaching(memory: WebAssembly.Memory, end: number): ArrayBufferLike {
  if (memory.buffer.byteLength < end) memory.grow(0);
  return memory.buffer;
}
