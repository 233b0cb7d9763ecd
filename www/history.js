/** What was read of one model over the last minutes, as rows for charts. */

import { countOf, quantile, since } from "./exposition.js";

/** How long rows are kept, and the time over which a row's percentiles are taken, in milliseconds. */
export const SPAN = 300_000;
const WINDOW = 10_000;
export const RECENT = 60_000;

const TIMES = ["first_token", "gap", "queue", "request"];

export class History {
  rows = [];
  #model;

  constructor(model) {
    this.#model = { model };
  }

  /** Adds what was read at a moment, in milliseconds. */
  add(at, exposition) {
    const gauge = (name) => exposition.value(`ternlight_${name}`, this.#model);
    const times = Object.fromEntries(
      TIMES.map((name) => [name, exposition.histogram(`ternlight_${name}_seconds`, this.#model)]),
    );
    const last = this.rows.at(-1);
    const generated = gauge("generated_tokens_total");
    const began = last && generated < last.generated;
    // Counters begin anew with a model that was loaded again; what was counted before says nothing then.
    if (began) for (const row of this.rows) row.times = null;
    const rate = last && !began ? ((generated - last.generated) * 1000) / (at - last.at) : null;
    const signals = Object.fromEntries(
      exposition.all("ternlight_health_value", this.#model).map(({ labels, value }) => [labels.signal, value]),
    );
    const row = {
      at,
      generated,
      rate,
      running: gauge("requests_running"),
      waiting: gauge("queue_depth"),
      kv: gauge("kv_cache_usage_ratio"),
      memory: gauge("memory_bytes"),
      signals,
      times,
    };
    this.rows.push(row);
    row.first = this.#percentile(row, "first_token");
    row.gap = this.#percentile(row, "gap");
    this.rows = this.rows.filter((one) => at - one.at <= SPAN);
    return row;
  }

  /** What a histogram has got within the last so many milliseconds; null where it is not known. */
  recent(name, span, row = this.rows.at(-1)) {
    const now = row?.times?.[name];
    if (!now) return null;
    // The last row before that time; a row that has lost its counts says nothing.
    const before =
      this.rows.findLast((one) => row.at - one.at >= span && one.times) ?? this.rows.find((one) => one.times);
    return before === row ? null : since(now, before?.times?.[name]);
  }

  #percentile(row, name) {
    const found = this.recent(name, WINDOW, row);
    return found && countOf(found) > 0 ? quantile(found, 0.95).value : null;
  }
}
