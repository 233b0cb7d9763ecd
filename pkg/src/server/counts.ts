/** What the server itself counts, beside its models. */

import { Recorder } from "../metrics/recorder.ts";
import { coarser, type Family } from "../metrics/text.ts";
import type { Histogram } from "../types/index.ts";
import type { RequestRecord } from "./settings.ts";

const SECONDS = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 640];

export class Counts {
  readonly #requests = new Map<string, { labels: Record<string, string | number>; count: number }>();
  readonly #times = new Map<string, { add(seconds: number): void } & Histogram>();

  /** @param path one of the server's routes, so that clients cannot make labels */
  note({ method, status, ms }: RequestRecord, path: string): void {
    const key = `${method} ${path} ${status}`;
    const entry = this.#requests.get(key) ?? { labels: { method, path, status }, count: 0 };
    entry.count++;
    this.#requests.set(key, entry);
    const times = this.#times.get(path) ?? Recorder.times();
    times.add(ms / 1000);
    this.#times.set(path, times);
  }

  families(version: string, active: number, ready: readonly (readonly [name: string, ready: boolean])[]): Family[] {
    const plain = (type: "counter" | "gauge", name: string, help: string, value: number): Family => ({
      type,
      name,
      help,
      samples: [[{}, value]],
    });
    return [
      { type: "info", name: "ternlight_server_info", help: "The server's version.", samples: [[{ version }, 1]] },
      {
        type: "gauge",
        name: "ternlight_model_ready",
        help: "Whether a model answers: 1, or 0; one that was put away while nobody asked does.",
        samples: ready.map(([model, there]) => [{ model }, there ? 1 : 0]),
      },
      plain("gauge", "ternlight_http_requests_active", "Requests under way.", active),
      {
        type: "counter",
        name: "ternlight_http_requests_total",
        help: "Requests that were answered.",
        samples: [...this.#requests.values()].map(({ labels, count }) => [labels, count]),
      },
      {
        type: "histogram",
        name: "ternlight_http_request_seconds",
        help: "From a request to the end of its answer.",
        samples: [...this.#times].map(([path, times]) => [{ path }, coarser(times, SECONDS)]),
      },
      ...ofProcess(plain),
    ];
  }
}

let startSeconds: number | undefined;

/** Under the names that Prometheus' own clients have; nothing where the runtime does not tell. */
function ofProcess(plain: (type: "counter" | "gauge", name: string, help: string, value: number) => Family): Family[] {
  const { process } = globalThis as {
    process?: { memoryUsage?: { rss?(): number }; cpuUsage?(): { user: number; system: number }; uptime?(): number };
  };
  const [rss, cpu] = [process?.memoryUsage?.rss?.(), process?.cpuUsage?.()];
  const uptime = process?.uptime?.();
  // Once: it would tremble with the clock, and look like a restart.
  if (uptime !== undefined) startSeconds ??= Math.round(1000 * (Date.now() / 1000 - uptime)) / 1000;
  return [
    ...(rss ? [plain("gauge", "process_resident_memory_bytes", "Resident memory.", rss)] : []),
    ...(cpu ? [plain("counter", "process_cpu_seconds_total", "Processor time.", (cpu.user + cpu.system) / 1e6)] : []),
    ...(startSeconds ? [plain("gauge", "process_start_time_seconds", "When the process started.", startSeconds)] : []),
  ];
}
