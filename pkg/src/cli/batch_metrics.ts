/** Metrics of queues: printed once, or served to a scraper. */

import { CONTENT_TYPES } from "../metrics/text.ts";
import type { Args } from "./args.ts";
import type { Metrics } from "./batch_library.ts";
import { type Listener, listen } from "./listen.ts";
import { UsageError } from "./syntax.ts";
import type { Terminal } from "./terminal.ts";

type Works = NonNullable<Parameters<Metrics["text"]>[0]>;

export async function metricsOf(open: () => Promise<Metrics>, terminal: Terminal): Promise<void> {
  const metrics = await open();
  try {
    await terminal.print(await metrics.text());
  } finally {
    await metrics.close();
  }
}

/** Answers `GET /metrics` where --metrics-listen says; null without it. */
export async function serveMetrics(
  args: Args,
  open: () => Promise<Metrics>,
  works: Works = [],
): Promise<Listener | null> {
  const { metricsListen } = args.own<{ metricsListen?: string }>("metricsFlags");
  if (metricsListen === undefined) return null;
  const place = placeOf(metricsListen);
  const metrics = await open();
  const listener = await listen(place, async (request) => {
    if (new URL(request.url).pathname !== "/metrics") return new Response("GET /metrics\n", { status: 404 });
    return new Response(await metrics.text(works), { headers: { "content-type": CONTENT_TYPES.prometheus } });
  }).catch(async (error) => {
    await metrics.close();
    throw error;
  });
  return {
    url: `${listener.url}/metrics`,
    async close() {
      await listener.close();
      await metrics.close();
    },
  };
}

function placeOf(text: string): { host: string; port: number } {
  const [, host = "127.0.0.1", port] = /^(?:(.*):)?(\d{1,5})$/.exec(text) ?? [];
  if (port !== undefined && Number(port) <= 65_535) return { host: host.replace(/^\[|\]$/g, ""), port: Number(port) };
  const option = "--metrics-listen";
  throw new UsageError(`${option} must be [HOST:]PORT`, { option, expected: "[HOST:]PORT" });
}
