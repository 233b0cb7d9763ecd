/** Who may ask: the Host header, keys and origins. */

import type { MiddlewareHandler } from "hono";
import { cors } from "hono/cors";
import { ApiError } from "../openai/errors.ts";
import { wrong } from "../options/check.ts";
import { type Env, OPEN } from "./env.ts";

/** An address in a Host header: four numbers, or what stands in brackets. */
const ADDRESS = /^(\d{1,3}(\.\d{1,3}){3}|\[[\d:a-f.]+\])$/;

/** What no name has that is compared with a Host header without its port. */
const NO_NAME = /[\s/*]|^[^:]*:\d*$/;

/**
 * A page whose own name leads to this machine (DNS rebinding) has that name in the Host header. Only names can be turned: who writes an
 * address reaches what has it.
 */
export function hosts(allowed: readonly string[]): MiddlewareHandler<Env> {
  const wrongOne = allowed.find((name) => NO_NAME.test(name));
  if (wrongOne !== undefined)
    throw wrong(
      "createApp",
      "allowedHosts",
      "names such as models.example.com, without scheme, port, path or *",
      wrongOne,
    );
  const names = new Set(allowed.map((name) => name.toLowerCase()));
  return async (c, next) => {
    // Pages always send one; probes of HTTP/1.0 do not.
    const host = c.req.header("host")?.toLowerCase().replace(/:\d*$/, "");
    if (host !== undefined && !names.has(host) && !ADDRESS.test(host)) {
      const shown = JSON.stringify(host.slice(0, 100));
      const message = `the server does not know the name ${shown}: --allowed-host (allowedHosts) adds one`;
      throw new ApiError(403, message, { code: "host_not_allowed" });
    }
    await next();
  };
}

export function origins(allowed: readonly string[]): MiddlewareHandler<Env> {
  const wrongOne = allowed.find((origin) => origin !== "*" && !isOrigin(origin));
  if (wrongOne !== undefined)
    throw wrong("createApp", "cors", '"*" or origins such as https://example.org, without a path or a slash', wrongOne);
  return cors({
    origin: allowed.includes("*") ? "*" : [...allowed],
    exposeHeaders: ["x-request-id", "request-id", "retry-after", "retry-after-ms"],
    maxAge: 600,
  });
}

/** As browsers send it. Extensions have schemes of their own, whose origins URL does not tell. */
const isOrigin = (text: string): boolean => /^[a-z][a-z0-9+.-]*:\/\/[^/?#]+$/.test(text) || text === "null";

export function keys(given: readonly string[]): MiddlewareHandler<Env> {
  const digests = Promise.all(given.map(digest));
  const code = "invalid_api_key";
  const refusal = async (key: string | undefined) => {
    if (key === undefined)
      return new ApiError(401, "a key is missing: Authorization: Bearer KEY", { code, headers: CHALLENGE });
    const own = await digest(key.trim());
    // Every key is compared, and of each every byte.
    const matches = (await digests).map((one) => one.reduce((difference, byte, i) => difference | (byte ^ own[i]!), 0));
    return matches.includes(0) ? null : new ApiError(401, "the key is wrong", { code, headers: CHALLENGE });
  };
  return async (c, next) => {
    const bearer = /^Bearer +(.*)$/i.exec(c.req.header("authorization") ?? "")?.[1];
    const refused = await refusal(bearer ?? c.req.header("x-api-key"));
    if (refused && !OPEN.includes(c.req.path)) throw refused;
    if (refused) c.set("stranger", true);
    await next();
  };
}

const CHALLENGE = { "www-authenticate": "Bearer" };

const digest = async (text: string) =>
  new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text)));
