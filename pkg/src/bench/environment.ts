/** What Node, Deno and Bun know of themselves. */

import { availableParallelism, cpus } from "node:os";
import type { Environment } from "./bench.ts";

export const environment: Environment = {
  machine: { runtime: runtime(), cpu: cpus()[0]?.model.trim() || null, cores: availableParallelism() },
  peakRssBytes: () => process.resourceUsage().maxRSS * 1024 || null,
};

function runtime(): string {
  const { Deno } = globalThis as { Deno?: { version: { deno: string } } };
  if (Deno) return `Deno ${Deno.version.deno}`;
  const { bun, node } = process.versions;
  return bun ? `Bun ${bun}` : `Node ${node}`;
}
