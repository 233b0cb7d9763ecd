/** What hono's handlers know of a request. */

import type { Context, Hono } from "hono";
import type { Entry } from "./core.ts";

export interface Env {
  Variables: {
    entry: Entry;
    /** Has no key where keys are asked for: health checks tell such a one the state alone. */
    stranger?: true;
  };
}
export type App = Hono<Env>;
export type AppContext = Context<Env>;

/** Where anybody may look, whatever the key. */
export const OPEN = ["/health", "/livez", "/readyz"];
