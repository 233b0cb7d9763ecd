/** What can be said about a model without loading it. Nothing is kept in the cache. */

import type { EngineSettings, LoadSettings } from "../rpc/protocol.ts";
import type { SourceSpec } from "../source/spec.ts";
import type { CanRun, Description } from "../types/index.ts";
import { pick } from "../wasm/pick.ts";
import { withActivationMap } from "./activation_map.ts";
import type { LoadContext } from "./context.ts";
import { feed } from "./feed.ts";
import { readHeaders } from "./headers.ts";
import { withFiles } from "./opening.ts";
import { planLoad } from "./plan.ts";
import { choose, featuresOf, Runtime } from "./runtime.ts";
import { loadText } from "./text.ts";

/** Whether a model fits in memory, from its header alone: that of this machine, or what another one has `free`. */
export async function canRun(
  source: SourceSpec,
  settings: LoadSettings,
  { memory, free }: { memory: number | undefined; free: number | null | undefined },
  context: LoadContext,
): Promise<CanRun> {
  const { platform, signal } = context;
  const runtime = await Runtime.start(choose(settings, platform), context);
  return withFiles(source, { paths: platform.paths, signal }, context, async (files) => {
    const { glue } = runtime.planner();
    const headers = await readHeaders(glue, files, signal);
    const mapped = await withActivationMap(settings, headers, glue, platform);
    const { loader, verdict } = await planLoad(glue, headers, mapped.settings, {
      free: free === undefined ? platform.freeMemory() : free,
      memory,
      split: platform.split,
    });
    const { heads } = loader.describe() as Description;
    loader.free();
    const { available } = verdict;
    return { ...verdict, heads: heads.map((choice) => ({ ...choice, ok: choice.memory.total <= available })) };
  });
}

/** What a model is, from its header alone or, with `weights`, from all of its bytes. */
export async function inspect(
  source: SourceSpec,
  settings: EngineSettings,
  weights: boolean,
  context: LoadContext,
): Promise<Description> {
  const { platform, signal } = context;
  const choice = pick(featuresOf(platform), 1, { threads: 1 });
  const runtime = await Runtime.start(choice, context);
  return withFiles(source, { paths: platform.paths, signal }, context, async (files) => {
    const instance = runtime.planner();
    const headers = await readHeaders(instance.glue, files, signal);
    const { settings: own, told } = await withActivationMap(settings, headers, instance.glue, platform);
    const { checkpoint } = headers;
    const loader = weights
      ? (await feed({ places: [{ instance, checkpoint }], files, settings: own, survey: true }, context)).loaders[0]!
      : new instance.glue.Loader(checkpoint, own);
    const description = loader.describe() as Description;
    const text = await loadText(headers.metadata, headers.prefix, files, platform);
    const warnings = [...description.warnings, ...text.warningsFor(description.config.vocab)];
    return { ...description, ...text.describe(), ...told, warnings };
  });
}
