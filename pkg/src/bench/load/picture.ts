/** A picture of latency over load, as SVG. */

import type { Latencies, LoadReport } from "./report.ts";

const [WIDTH, HEIGHT] = [720, 400];
const [LEFT, RIGHT, TOP, BOTTOM] = [70, 150, 30, 50];
const COLOURS = ["#1b6d92", "#b87500", "#a6201d", "#4c5f6b", "#6a3d9a"];
const TICKS = 5;

interface Curve {
  name: string;
  dashed: boolean;
  colour: string;
  points: { x: number; y: number; label: string }[];
}

export function picture(report: LoadReport): string {
  const curves = curvesOf(report);
  const all = curves.flatMap(({ points }) => points);
  const most = (value: (point: { x: number; y: number }) => number) => Math.max(...all.map(value), 0) * 1.05 || 1;
  const [mostX, mostY] = [most(({ x }) => x), most(({ y }) => y)];
  const x = (value: number) => LEFT + (value / mostX) * (WIDTH - LEFT - RIGHT);
  const y = (value: number) => HEIGHT - BOTTOM - (value / mostY) * (HEIGHT - TOP - BOTTOM);
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" font-family="system-ui, sans-serif" font-size="12">`,
    `<title>${escaped(`Latency over load: ${report.target}`)}</title>`,
    `<rect width="${WIDTH}" height="${HEIGHT}" fill="#fff"/>`,
    label(LEFT, 18, report.target),
    ...axes(x, y, mostX, mostY),
    ...curves.flatMap((curve, i) => drawn(curve, x, y, TOP + 14 + 18 * i)),
    "</svg>",
    "",
  ].join("\n");
}

/** A line for each percentile of whole answers, and dashed ones for first tokens. */
function curvesOf({ rows, percentiles }: LoadReport): Curve[] {
  const kinds = [
    ["whole answer", "wholeMs", false],
    ["first token", "firstMs", true],
  ] as const;
  const sorted = [...rows].sort((a, b) => a.servedPerSecond - b.servedPerSecond);
  return kinds.flatMap(([name, key, dashed]) =>
    percentiles.map((p, i) => ({
      name: `${name}, p${p}`,
      dashed,
      colour: COLOURS[i % COLOURS.length]!,
      points: sorted.flatMap((row) => {
        const value = (row[key] as Latencies)[`p${p}`];
        const inFlight = row.size === null ? "" : `${row.size} in flight: `;
        const said = `${inFlight}${row.servedPerSecond.toFixed(2)} requests/s, ${name} p${p} ${value?.toFixed(1)} ms`;
        return value === undefined ? [] : [{ x: row.servedPerSecond, y: value, label: said }];
      }),
    })),
  );
}

function axes(x: (value: number) => number, y: (value: number) => number, mostX: number, mostY: number): string[] {
  const [x0, y0] = [x(0), y(0)];
  const ticks = Array.from({ length: TICKS + 1 }, (_, i) => i / TICKS);
  return [
    `<path d="M${x0} ${y(mostY)}V${y0}H${x(mostX)}" fill="none" stroke="#778994"/>`,
    ...ticks.map((part) => label(x(part * mostX), y0 + 18, short(part * mostX), "middle")),
    ...ticks.map((part) => label(x0 - 8, y(part * mostY) + 4, short(part * mostY), "end")),
    label((x0 + x(mostX)) / 2, HEIGHT - 10, "served requests/s", "middle"),
    `<text transform="translate(16 ${(y0 + y(mostY)) / 2}) rotate(-90)" text-anchor="middle">ms</text>`,
  ];
}

function drawn(
  { name, dashed, colour, points }: Curve,
  x: (v: number) => number,
  y: (v: number) => number,
  at: number,
) {
  const stroke = `stroke="${colour}"${dashed ? ' stroke-dasharray="4 3"' : ""}`;
  const path = points.map((point) => `${x(point.x).toFixed(1)} ${y(point.y).toFixed(1)}`).join("L");
  const dots = points.map((point) => {
    const place = `cx="${x(point.x).toFixed(1)}" cy="${y(point.y).toFixed(1)}"`;
    return `<circle ${place} r="3" fill="${colour}"><title>${escaped(point.label)}</title></circle>`;
  });
  const line = points.length > 1 ? [`<path d="M${path}" fill="none" ${stroke}/>`] : [];
  const key = `<path d="M${WIDTH - RIGHT + 8} ${at - 4}h20" ${stroke}/>`;
  return [...line, ...dots, key, label(WIDTH - RIGHT + 34, at, name)];
}

const short = (value: number) => (value < 10 ? value.toPrecision(2) : value.toFixed(0));

const label = (x: number, y: number, text: string, anchor = "start") =>
  `<text x="${x.toFixed(1)}" y="${y.toFixed(1)}" text-anchor="${anchor}" fill="#10202a">${escaped(text)}</text>`;

const escaped = (text: string) =>
  text.replace(/[&<>"']/g, (letter) => `&#${letter.charCodeAt(0)};`).replace(/\p{Cc}/gu, " ");
