/** The OpenAPI document. */

import { document } from "../../openai/document.ts";
import type { App } from "../env.ts";

export function documentRoute(app: App, version: string): void {
  app.get("/openapi.json", (c) => c.json(document(version)));
}
