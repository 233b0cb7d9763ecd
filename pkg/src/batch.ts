/** Lines of batches and their answers, for programs that bring their own queue; `@ternlight/batch` is one. */

import { readFileSync } from "node:fs";
import { type Answerer, openAnswerer as openWith } from "./batch/answerer.ts";
import { openInput } from "./batch/input.ts";
import { readRows } from "./batch/rows.ts";
import { Template } from "./batch/template.ts";
import { load } from "./node.ts";
import type { Line } from "./server.ts";
import type { LoadOptions, ModelSource } from "./types/index.ts";

export type { Answerer } from "./batch/answerer.ts";
export { checkPlace, lock as lockFile } from "./batch/disk.ts";
export { type Family as MetricFamily, write as metricsText } from "./metrics/text.ts";
export type { Answered, Line } from "./server.ts";
export { EngineError } from "./types/errors.ts";

export interface AnswererOptions {
  /** The model's name, as its answers have it. */
  name: string;
  /** The most tokens of an answer whose line has no limit; -1 is none. @default 128 tokens */
  defaultMaxTokens?: number | undefined;
  /** How the model is loaded. */
  load?: LoadOptions | undefined;
}

/** Loads a model to answer lines. The same lines get the same bytes of every model of the same `identity`. */
export function openAnswerer(source: ModelSource, options: AnswererOptions): Promise<Answerer> {
  const { name, defaultMaxTokens = 128, load: settings = {} } = options;
  const { version } = JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8"));
  return openWith((more) => load(source, { ...settings, ...more }), { name, defaultMaxTokens, version });
}

export interface ReadOptions {
  /** What makes a request of each row: a text with `{{column}}` in it, or the JSON of a request. */
  template?: string | undefined;
  signal?: AbortSignal | undefined;
}

/** Reads the lines of a file in blocks, also of gzip and Zstandard; `-` is standard input. */
export async function* readLines(file: string, options: ReadOptions = {}): AsyncGenerator<Line[], undefined> {
  const { template, signal } = options;
  const made = template === undefined ? null : new Template(template);
  yield* readRows(await openInput(file, signal), made);
}
