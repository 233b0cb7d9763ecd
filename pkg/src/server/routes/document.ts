/** The OpenAPI document. */

import { document } from "../../openai/document.ts";
import type { Core } from "../core.ts";
import type { App } from "../env.ts";

export function documentRoute(app: App, core: Core, version: string): void {
  const keys = (core.settings.apiKeys?.length ?? 0) > 0;
  app.get("/openapi.json", (c) => c.json(document(version, { keys, one: core.models.only !== null })));
}
