/** Whether the server lives, is ready, and what it does: for load balancers, dashboards and people. */

import { ApiError, retryHeaders } from "../../openai/errors.ts";
import type { HealthState } from "../../types/index.ts";
import type { Core } from "../core.ts";
import type { App, AppContext } from "../env.ts";
import { stopping } from "../models.ts";

/** Milliseconds that a model may take to say how it is. */
const HEALTH_MS = 300;

export function healthRoutes(app: App, core: Core, version: string): void {
  const { models } = core;
  app.get("/livez", (c) => c.json({ status: "ok" }));
  const ready = async (c: AppContext) => {
    const stranger = c.get("stranger") === true;
    if (core.stopping) return unready("stopping", stopping());
    if (models.allReady) return Response.json({ status: "ok", ...(stranger ? {} : await healthOf(core)) });
    const waiting = models.slots.find(({ state }) => state === "loading" || state === "failed")!;
    const { code } = waiting.unavailable();
    if (stranger)
      return unready(waiting.state, new ApiError(503, "the server is not ready", { code: code ?? waiting.state }));
    return unready(waiting.state, waiting.unavailable(), { model: waiting.name, progress: waiting.progress });
  };
  app.get("/health", ready);
  app.get("/readyz", ready);
  app.get("/version", (c) => c.json({ version }));

  // What llama-server and vLLM tell in metrics alone.
  app.get("/status", async (c) => {
    const each = models.slots.map(async (slot) => {
      const ready = await slot.current();
      // A model that is unloaded or lost while it is asked tells its new state alone.
      const status = await ready?.model.status().catch(() => null);
      return { name: slot.name, state: slot.state, ...status };
    });
    return c.json({ active: core.active, models: await Promise.all(each) });
  });

  app.get("/slots", async (c) => {
    const { model } = await core.current(c.req.query("model"));
    const { running } = await model.status();
    const { contextLength, maxSequences } = model.info;
    const slots = Array.from({ length: maxSequences }, (_, id) => ({
      id,
      n_ctx: contextLength,
      is_processing: id < running,
    }));
    return c.json(slots);
  });

  app.get("/props", async (c) => {
    const { model, name } = await core.current(c.req.query("model"));
    const { info } = model;
    const { specialTokens, template } = await model.tokenizerInfo();
    return c.json({
      default_generation_settings: { n_ctx: info.contextLength, params: { n_predict: core.settings.defaultMaxTokens } },
      total_slots: info.maxSequences,
      model_alias: name,
      chat_template: template ?? "",
      bos_token: specialTokens.bos_token ?? "",
      eos_token: specialTokens.eos_token ?? "",
      modalities: { vision: false, audio: false },
      build_info: `ternlight ${version} ${info.flavour}`,
      is_sleeping: false,
    });
  });
}

/** How well the models are that are watched; nothing where none is. An alarm is no reason to take a server out of service. */
async function healthOf({ models }: Core): Promise<object> {
  const each = models.slots.map(async (slot) => {
    const ready = await slot.current();
    const health = await Promise.race([ready?.model.health().catch(() => null), late()]);
    return health?.watched ? [[slot.name, health] as const] : [];
  });
  const all = (await Promise.all(each)).flat();
  if (all.length === 0) return {};
  const order: readonly HealthState[] = ["unknown", "ok", "warn", "alert"];
  const worst = Math.max(...all.map(([, { state }]) => order.indexOf(state)));
  return { health: order[worst], models: Object.fromEntries(all) };
}

/** A probe does not wait for a worker that is busy. */
const late = () => new Promise<null>((resolve) => setTimeout(() => resolve(null), HEALTH_MS));

function unready(status: string, error: ApiError, more: object = {}): Response {
  const headers = { ...retryHeaders(1000), ...error.headers };
  return Response.json({ status, ...more, ...error.body() }, { status: 503, headers });
}
