/** Metrics of the server and its models, for Prometheus and what reads its format. */

import { families } from "../../metrics/dialects.ts";
import type { Measured } from "../../metrics/measured.ts";
import { CONTENT_TYPES, formatFor, write } from "../../metrics/text.ts";
import { invalid } from "../../openai/errors.ts";
import type { MetricsDialect } from "../../types/index.ts";
import { batchFamilies } from "../batches.ts";
import type { Core } from "../core.ts";
import type { App } from "../env.ts";
import type { Slot } from "../slot.ts";

export function metricRoutes(app: App, core: Core, version: string): void {
  app.get("/metrics", async (c) => {
    const dialect = c.req.query("dialect") ?? core.settings.metricsDialect;
    if (!Object.hasOwn(families, dialect))
      throw invalid("dialect", `dialect must be one of ${Object.keys(families).join(", ")}`);
    const { slots } = core.models;
    const measured = (await Promise.all(slots.map(measure))).filter((one) => one !== null);
    const all = families[dialect as MetricsDialect](measured);
    if (dialect === "ternlight") {
      // As /readyz: one that idles is loaded for the next request.
      const ready = slots.map(({ name, state }) => [name, state === "ready" || state === "idle"] as const);
      all.push(...core.counts.families(version, core.active, ready));
      const { batches } = core.settings;
      if (batches) all.push(...batchFamilies(batches));
    }
    const format = formatFor(c.req.header("accept"));
    return new Response(write(all, format), { headers: { "content-type": CONTENT_TYPES[format], vary: "accept" } });
  });
}

/** What a model has counted; null where it is not there now. */
async function measure(slot: Slot): Promise<Measured | null> {
  const ready = await slot.current();
  if (!ready) return null;
  const { model } = ready;
  try {
    const all = [model.status(), model.statistics(), model.health()] as const;
    const [status, statistics, health] = await Promise.all(all);
    const adapters = model.adapters.map(({ name }) => name);
    return { name: slot.name, info: model.info, status, statistics, adapters, health };
  } catch {
    // Its worker has just died: it is loaded again.
    return null;
  }
}
