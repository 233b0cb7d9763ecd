/** How fast a run goes: figures and a chart, while it goes and after. */

import { duration, integer, rate, tokens } from "./format.js";

/** Tokens that reach the page within this many milliseconds came in one message. */
const TOGETHER = 2;
const MAX_POINTS = 240;
/** Between two updates of figures and chart, in milliseconds: faster is neither read nor drawn for nothing. */
const REFRESH = 100;

/** When tokens came, in milliseconds since the run began. */
export class Run {
  #started = performance.now();
  #ended = null;
  /** { at, count }: so many tokens had come by then. */
  #marks = [];

  constructor(promptTokens) {
    /** Null while it is not known. */
    this.promptTokens = promptTokens;
  }

  add(count) {
    const at = this.#elapsed();
    const last = this.#marks.at(-1);
    if (last && at - last.at < TOGETHER) last.count += count;
    else this.#marks.push({ at, count: (last?.count ?? 0) + count });
  }

  end() {
    this.#ended = this.#elapsed();
  }

  #elapsed() {
    return this.#ended ?? performance.now() - this.#started;
  }

  get length() {
    return this.#elapsed();
  }

  get first() {
    return this.#marks[0] ?? null;
  }

  get count() {
    return this.#marks.at(-1)?.count ?? 0;
  }

  /** Tokens a second since the first message. */
  get decode() {
    return between(this.#marks[0], this.#marks.at(-1));
  }

  get prefill() {
    return this.promptTokens && this.first ? (this.promptTokens * 1000) / this.first.at : null;
  }

  /**
   * { at, rate } along the run. Each covers a whole number of messages, so that their rhythm does not show as noise.
   */
  points() {
    const window = Math.max(120, this.#elapsed() / 12);
    const step = Math.ceil(this.#marks.length / MAX_POINTS);
    const points = [];
    let from = 0;
    for (let to = 1; to < this.#marks.length; to++) {
      while (this.#marks[to].at - this.#marks[from + 1].at >= window) from++;
      const span = this.#marks[to].at - this.#marks[from].at;
      if (span < window / 2 || to % step !== 0) continue;
      points.push({ at: this.#marks[to].at, rate: between(this.#marks[from], this.#marks[to]) });
    }
    return points;
  }
}

const between = (a, b) => (a && b && b.at > a.at ? ((b.count - a.count) * 1000) / (b.at - a.at) : null);

export class SpeedPanel {
  #elements;
  #run = null;
  #timings = null;
  #shown = 0;

  /** @param elements { decode, prefill, note, chart } */
  constructor(elements) {
    this.#elements = elements;
    new ResizeObserver(() => this.#draw()).observe(elements.chart);
  }

  clear() {
    this.#run = null;
    this.#timings = null;
    const { decode, prefill, note, chart } = this.#elements;
    for (const figure of [decode, prefill]) show(figure, null);
    note.textContent = "Measured as the text is written.";
    chart.setAttribute("aria-label", "Decode speed over the run: nothing has run yet");
    this.#draw();
  }

  /** A run under way. */
  show(run) {
    if (run === this.#run && performance.now() - this.#shown < REFRESH) return;
    this.#run = run;
    this.#timings = null;
    this.#shown = performance.now();
    const { decode, prefill, note } = this.#elements;
    show(decode, run.decode);
    show(prefill, run.prefill, run.promptTokens ? "0" : "…");
    note.textContent = run.first
      ? `${tokens(run.count)} in ${duration(run.length - run.first.at)}`
      : `Reading ${run.promptTokens ? tokens(run.promptTokens) : "the prompt"}: ${duration(run.length)}`;
    this.#draw();
  }

  /** The engine's own times, which know nothing of messages and frames. */
  finish(run, timings, seed) {
    this.#run = run;
    this.#timings = timings;
    this.#draw();
    const { decode, prefill, note, chart } = this.#elements;
    show(decode, timings.predictedPerSecond);
    show(prefill, timings.promptPerSecond);
    note.textContent =
      `${tokens(timings.promptN)} read in ${duration(timings.promptMs)}, ` +
      `${integer(timings.predictedN)} written in ${duration(timings.predictedMs)}, seed ${seed}`;
    chart.setAttribute(
      "aria-label",
      `Decode speed over the run: ${rate(timings.predictedPerSecond)} tokens a second on average`,
    );
  }

  /** A finished run whose messages were too few or too close for a course is drawn as its average. */
  #points() {
    const points = this.#run?.points() ?? [];
    if (points.length > 1 || !this.#timings?.predictedPerSecond) return points;
    const { predictedMs, predictedPerSecond: rate } = this.#timings;
    const end = this.#run.length;
    return [Math.max(0, end - predictedMs), end].map((at) => ({ at, rate }));
  }

  #draw() {
    const { chart } = this.#elements;
    const { clientWidth: width, clientHeight: height } = chart;
    if (width === 0) return;
    const points = this.#points();
    const most = ceiling(Math.max(1, ...points.map((point) => point.rate)));
    const end = this.#run?.length || 1;
    // Labels have their own lines above and below.
    const [top, bottom] = [14, height - 14];
    const x = (at) => (at / end) * width;
    const y = (perSecond) => bottom - (perSecond / most) * (bottom - top);
    const read = this.#run ? x(this.#run.first?.at ?? end) : 0;

    chart.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const line = points.map(({ at, rate }) => `${x(at).toFixed(1)} ${y(rate).toFixed(1)}`).join("L");
    const [from, to] = [points[0], points.at(-1)].map((point) => point && x(point.at).toFixed(1));
    chart.replaceChildren(
      shape("rect", { class: "reading", x: 0, y: top, width: read, height: bottom - top }),
      ...[0, 0.5, 1].map((part) => shape("path", { class: "grid", d: `M0 ${y(part * most)}H${width}` })),
      ...(points.length > 1
        ? [
            shape("path", { class: "area", d: `M${from} ${bottom}L${line}L${to} ${bottom}Z` }),
            shape("path", { class: "line", d: `M${line}` }),
          ]
        : []),
      ...(points.length > 0 ? [label(0, top - 4, "start", `${rate(most)} tokens/s`)] : []),
      label(0, height - 2, "start", read > 40 ? "prefill" : "0"),
      ...(this.#run ? [label(width, height - 2, "end", duration(end))] : []),
    );
  }
}

function show(figure, perSecond, none = "0") {
  figure.textContent = perSecond ? rate(perSecond) : none;
  figure.classList.toggle("none", !perSecond);
}

/** A round number above. */
export function ceiling(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return power * [1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((step) => value <= step * power);
}

export function shape(name, attributes) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

export function label(x, y, anchor, text) {
  const element = shape("text", { x, y, "text-anchor": anchor });
  element.textContent = text;
  return element;
}
