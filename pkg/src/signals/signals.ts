/**
 * What only a model that is watched needs: its metrics as text. The bundles for pages have it in a file of its own, which a page loads
 * with the first question for it.
 */

import { families } from "../metrics/dialects.ts";
import type { Measured } from "../metrics/measured.ts";
import { write } from "../metrics/text.ts";
import type { MetricsDialect, MetricsFormat } from "../types/index.ts";

export { Recorder } from "../metrics/recorder.ts";
export { Monitor, unwatched } from "./monitor.ts";
export { checkThresholds } from "./thresholds.ts";

export const metricsText = (
  all: readonly Measured[],
  { format, dialect }: { format: MetricsFormat; dialect: MetricsDialect },
): string => write(families[dialect](all), format);
