/** What Node, Deno and Bun report of themselves and of their machine. */

import { availableParallelism, cpus } from "node:os";
import { runtimeName } from "../platform/node.ts";
import type { Environment } from "./bench.ts";

export const environment: Environment = {
  machine: { runtime: runtimeName(), cpu: cpus()[0]?.model.trim() || null, cores: availableParallelism() },
  peakRssBytes: () => process.resourceUsage().maxRSS * 1024 || null,
};
