/** Which models there are, and adapters that come and go. */

import { ApiError, faulty, invalid } from "../../openai/errors.ts";
import { check } from "../../openai/schema.ts";
import { loading, scales, unloading } from "../../openai/tokens.ts";
import { EngineError } from "../../types/errors.ts";
import type { Core } from "../core.ts";
import type { App } from "../env.ts";
import type { Slot } from "../slot.ts";

export function modelRoutes(app: App, core: Core): void {
  const { models } = core;
  app.get("/v1/models", (c) => c.json({ object: "list", data: models.list() }));
  // Names may have slashes.
  app.get("/v1/models/:name{.+}", (c) => c.json(models.entry(c.req.param("name"))));

  app.post("/v1/load_lora_adapter", async (c) => {
    const body = await core.body(c.req.raw);
    const fault = check(loading, body);
    if (fault) throw faulty(fault);
    const { lora_name: name, lora_path: path, base_model_name: base } = body as Record<string, string>;
    const slot = base ? models.find(base).slot : models.first;
    if (models.list().some(({ id }) => id === name))
      throw invalid("lora_name", `there is a model ${JSON.stringify(name)}`);
    await load(core, slot, name!, path!);
    return c.text(`Success: LoRA adapter '${name}' added successfully.`);
  });

  app.post("/v1/unload_lora_adapter", async (c) => {
    const body = await core.body(c.req.raw);
    const fault = check(unloading, body);
    if (fault) throw faulty(fault);
    const { lora_name: name } = body as { lora_name: string };
    const slot = models.slots.find(({ adapters }) => adapters.has(name));
    if (!slot)
      throw new ApiError(404, `there is no adapter ${JSON.stringify(name)}`, {
        param: "lora_name",
        code: "adapter_not_found",
      });
    await slot.unloadAdapter(name);
    return c.text(`Success: LoRA adapter '${name}' removed successfully.`);
  });

  app.get("/lora-adapters", (c) => c.json(numbered(models.first)));
  app.post("/lora-adapters", async (c) => {
    const body = await core.body(c.req.raw);
    const fault = check(scales, body);
    if (fault) throw faulty(fault);
    const all = [...models.first.adapters.values()];
    const given = body as { id: number; scale: number }[];
    const unknown = given.find(({ id }) => id >= all.length);
    if (unknown) throw invalid("id", `there is no adapter ${unknown.id}`);
    for (const adapter of all) adapter.always = 0;
    for (const { id, scale } of given) all[id]!.always = scale;
    return c.json(numbered(models.first));
  });
}

const numbered = ({ adapters }: Slot) =>
  [...adapters].map(([name, { always }], id) => ({ id, path: name, scale: always }));

async function load(core: Core, slot: Slot, name: string, path: string): Promise<void> {
  const { adapterSource } = core.settings;
  if (!adapterSource)
    throw new ApiError(403, "requests may not load adapters here", { param: "lora_path", code: "adapters_locked" });
  try {
    await slot.loadAdapter(name, adapterSource(path));
  } catch (error) {
    if (!(error instanceof EngineError)) throw error;
    // The reason is told by its code: messages name files.
    const status = error.code === "NotFound" ? 404 : 400;
    throw new ApiError(status, `the adapter could not be loaded: ${error.code}`, {
      param: "lora_path",
      code: "adapter_not_loaded",
    });
  }
}
