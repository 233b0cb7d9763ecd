/** Charts of the last minutes. */

import { SPAN } from "./history.js";
import { ceiling, label, shape } from "./speed.js";

/** Rows that are further apart are not joined, in milliseconds: nothing was read between them. */
const APART = 6000;
const MINUTE = 60_000;
const MARGIN = { top: 16, bottom: 15 };
/** Where the names of levels end, before the right edge: those of neighbours may not meet. */
const PLACES = [0, 34];

/** An empty chart. */
export const newChart = () => shape("svg", { role: "img", class: "chart" });

/**
 * Draws lines over the last minutes.
 *
 * @param chart an `svg` element
 * @param lines each with its `name`, and `points` of { at, value }; a value that is null leaves a gap
 * @param show how a value is written
 * @param levels { value, kind, text }: what is drawn across, where it lies in the picture
 */
export function draw(chart, { title, lines, show, least = 1, levels = [], now }) {
  const { clientWidth: width, clientHeight: height } = chart;
  if (width === 0) return;
  const known = lines.flatMap(({ points }) => points.map(({ value }) => value).filter(Number.isFinite));
  const most = ceiling(Math.max(least, ...known));
  const [top, bottom] = [MARGIN.top, height - MARGIN.bottom];
  const minutes = Math.ceil((now - Math.min(now - 1, ...lines.flatMap(({ points }) => points[0]?.at ?? now))) / MINUTE);
  const span = Math.min(SPAN, minutes * MINUTE);
  const x = (at) => width - ((now - at) / span) * width;
  const y = (value) => bottom - (Math.min(value, most) / most) * (bottom - top);
  chart.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const last = lines.map(({ name, points }) => {
    const value = points.at(-1)?.value;
    return `${name ? `${name} ` : ""}${Number.isFinite(value) ? show(value) : "unknown"}`;
  });
  const highest = known.length > 0 ? `, at most ${show(Math.max(...known))}` : "";
  chart.setAttribute("aria-label", `${title}: now ${last.join(", ")}${highest} in the last ${span / MINUTE} min`);
  chart.replaceChildren(
    ...[0, 1].map((part) => shape("path", { class: "grid", d: `M0 ${y(part * most)}H${width}` })),
    ...levels
      .filter(({ value }) => value > 0 && value <= most)
      .flatMap(({ value, kind, text }, i) => [
        shape("path", { class: `level ${kind}`, d: `M0 ${y(value)}H${width}` }),
        named(label(width - PLACES[i % PLACES.length], y(value) - 3, "end", text), kind),
      ]),
    ...lines.map(({ points }, i) => shape("path", { class: `line line-${i}`, d: pathOf(points, x, y) })),
    label(0, top - 5, "start", show(most)),
    label(0, height - 2, "start", `${span / MINUTE} min ago`),
    label(width, height - 2, "end", "now"),
  );
}

/** Lines of neighbours; one that stands alone is a dot. */
function pathOf(points, x, y) {
  let path = "";
  let before = null;
  for (const { at, value } of points) {
    const here = Number.isFinite(value) ? `${x(at).toFixed(1)} ${y(value).toFixed(1)}` : null;
    if (here !== null) path += before !== null && at - before <= APART ? `L${here}` : `M${here}h.1`;
    before = here === null ? null : at;
  }
  return path;
}

function named(element, kind) {
  element.setAttribute("class", kind);
  return element;
}
