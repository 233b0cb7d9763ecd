/** The app over the demo model, and requests to it. */

import assert from "node:assert/strict";
import type { TestContext } from "node:test";
import { type LoadOptions, load } from "ternlight";
import { createApp, type ServerApp, type ServerOptions } from "ternlight/server";

export const DEMO = new URL("../../../models/ternlight-demo/", import.meta.url);
export const PLAIN = "{% for message in messages %}{{ message.content }}{% endfor %}";
/** Writes tools and calls as Hermes models do, which is where their format is seen. */
export const HERMES =
  "{% if tools %}{% for tool in tools %}{{ tool | tojson }}{% endfor %}{% endif %}" +
  "{% for message in messages %}{{ message.content }}{% endfor %}{% if false %}<tool_call></tool_call>{% endif %}";

/** What the model most likely says behind "Once upon a time". */
export const CONTINUATION = " there lived a man who had a wife and a wife.";

export interface Served extends ServerApp {
  post(path: string, body: unknown, init?: RequestInit): Promise<Response>;
  get(path: string, init?: RequestInit): Promise<Response>;
}

export async function served(
  context: TestContext,
  load: LoadOptions = {},
  options: Partial<ServerOptions> = {},
): Promise<Served> {
  const app = createApp({ models: { demo: loader(load) }, ...options });
  context.after(() => app.close());
  await app.ready;
  return asked(app);
}

export const loader =
  (options: LoadOptions = {}) =>
  (more: LoadOptions) =>
    load(DEMO, { threads: 1, chatTemplate: PLAIN, ...options, ...more });

export const asked = (app: ServerApp): Served => ({
  ...app,
  ready: app.ready,
  get active() {
    return app.active;
  },
  get: (path, init) => app.fetch(new Request(`http://localhost${path}`, init)),
  post: (path, body, init = {}) =>
    app.fetch(
      new Request(`http://localhost${path}`, {
        method: "POST",
        body: typeof body === "string" ? body : JSON.stringify(body),
        ...init,
        headers: { "content-type": "application/json", ...(init.headers as Record<string, string>) },
      }),
    ),
});

// biome-ignore lint/suspicious/noExplicitAny: what a body holds is what the tests check
export type Body = any;

export async function body(response: Response | Promise<Response>, status = 200): Promise<Body> {
  const found = await response;
  const text = await found.text();
  assert.equal(found.status, status, text);
  return JSON.parse(text);
}

/** The error of an answer: all four keys, of the types that clients rely on. */
export async function error(response: Response | Promise<Response>, status: number): Promise<Body> {
  const { error } = await body(response, status);
  assert.deepEqual(Object.keys(error).sort(), ["code", "message", "param", "type"]);
  for (const key of ["message", "type"]) assert.equal(typeof error[key], "string");
  for (const key of ["param", "code"]) assert.ok(error[key] === null || typeof error[key] === "string", key);
  return error;
}

export interface SseEvent {
  id?: string;
  event?: string;
  data: string;
}

/** The events of a stream's text. */
export function parseEvents(text: string): SseEvent[] {
  return text
    .split("\n\n")
    .filter((block) => block !== "" && !block.startsWith(":"))
    .map((block) => Object.fromEntries(block.split("\n").map((line) => line.split(/: (.*)/s).slice(0, 2))));
}

export async function events(response: Response | Promise<Response>): Promise<SseEvent[]> {
  const found = await response;
  assert.equal(found.status, 200);
  assert.match(found.headers.get("content-type") ?? "", /^text\/event-stream/);
  return parseEvents(await found.text());
}

/** The chunks of a completion's stream, which ends as clients expect. */
export async function chunks(response: Response | Promise<Response>): Promise<Body[]> {
  const all = await events(response);
  assert.equal(all.at(-1)?.data, "[DONE]");
  return all.slice(0, -1).map(({ data }) => JSON.parse(data));
}
