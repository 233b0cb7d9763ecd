/** Pictures of what the tools measured, as SVG. */

import type { Pruned } from "./prune.ts";
import type { QualityReport, QualityRow } from "./report.ts";

const [WIDTH, HEIGHT] = [720, 400];
const [LEFT, RIGHT, TOP, BOTTOM] = [80, 30, 40, 50];
const TICKS = 5;
const [FRONT, OTHER, MARK] = ["#1b6d92", "#778994", "#a6201d"];

interface Dot {
  x: number;
  y: number;
  /** Beside the dot, and as its title. */
  name: string;
  title: string;
  colour: string;
}

interface Chart {
  title: string;
  x: string;
  y: string;
  dots: readonly Dot[];
  /** Dots that a line goes through, from left to right. */
  line: readonly Dot[];
}

/** What tables call a way to round activations. */
export const activationsName = (activations: QualityRow["activations"]): string =>
  typeof activations === "string" ? activations : Object.keys(activations).length > 0 ? "map" : "as trained";

export const settingName = ({ kv, activations, head }: Pick<QualityRow, "kv" | "activations" | "head">): string =>
  [
    `kv ${kv}`,
    ...(activations === "auto" ? [] : [activationsName(activations)]),
    ...(head === "stored" ? [] : [`head ${head}`]),
  ].join(", ");

/** Perplexity over memory; the settings that no other one beats are joined. */
export function qualityPicture(report: QualityReport, title: string): string {
  const dots = report.rows.map((row): Dot => {
    const name = settingName(row);
    const speed = `${row.predictedPerSecond.toFixed(1)} tokens/s`;
    return {
      x: row.memory / 1e6,
      y: row.perplexity,
      name,
      title: `${name}: perplexity ${row.perplexity.toFixed(4)}, ${(row.memory / 1e6).toFixed(1)} MB, ${speed}`,
      colour: row.pareto ? FRONT! : OTHER!,
    };
  });
  const line = dots.filter((_, i) => report.rows[i]!.pareto).sort((a, b) => a.x - b.x);
  return drawn({ title, x: "memory, MB", y: "perplexity", dots, line });
}

/** Perplexity of held-out texts over the layers that stay; the knee is marked. */
export function prunePicture({ curve, knee }: Pick<Pruned, "curve" | "knee">, title: string): string {
  const dots = curve.map(
    ({ layers, dropped, perplexity }): Dot => ({
      x: layers,
      y: perplexity,
      name: layers === knee ? "knee" : "",
      title: `${layers} layers: perplexity ${perplexity.toFixed(3)}${dropped === null ? "" : `, without layer ${dropped}`}`,
      colour: layers === knee ? MARK! : FRONT!,
    }),
  );
  return drawn({ title, x: "layers", y: "perplexity", dots, line: dots });
}

function drawn({ title, x: nameX, y: nameY, dots, line }: Chart): string {
  const [x, ticksX] = axis(
    dots.map((dot) => dot.x),
    LEFT,
    WIDTH - RIGHT,
  );
  const [y, ticksY] = axis(
    dots.map((dot) => dot.y),
    HEIGHT - BOTTOM,
    TOP,
  );
  const path = line.map((dot) => `${x(dot.x).toFixed(1)} ${y(dot.y).toFixed(1)}`).join("L");
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" font-family="system-ui, sans-serif" font-size="12">`,
    `<title>${escaped(title)}</title>`,
    `<rect width="${WIDTH}" height="${HEIGHT}" fill="#fff"/>`,
    label(LEFT, 20, title),
    `<path d="M${LEFT} ${TOP}V${HEIGHT - BOTTOM}H${WIDTH - RIGHT}" fill="none" stroke="#778994"/>`,
    ...ticksX.map((value) => label(x(value), HEIGHT - BOTTOM + 18, short(value), "middle")),
    ...ticksY.map((value) => label(LEFT - 8, y(value) + 4, short(value), "end")),
    label((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, nameX, "middle"),
    `<text transform="translate(16 ${(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)" text-anchor="middle">${escaped(nameY)}</text>`,
    ...(line.length > 1 ? [`<path d="M${path}" fill="none" stroke="${FRONT}"/>`] : []),
    ...dots.flatMap((dot) => marked(dot, x(dot.x), y(dot.y))),
    "</svg>",
    "",
  ].join("\n");
}

/** From values to places, with a little room on both sides, and the values of some ticks. */
function axis(values: readonly number[], from: number, to: number): [(value: number) => number, number[]] {
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const room = (most - least) * 0.08 || Math.abs(most) * 0.05 || 1;
  const [low, high] = [least - room, most + room];
  const ticks = Array.from({ length: TICKS }, (_, i) => least + (i / (TICKS - 1)) * (most - least));
  return [(value) => from + ((value - low) / (high - low)) * (to - from), [...new Set(ticks)]];
}

function marked({ name, title, colour }: Dot, x: number, y: number): string[] {
  const dot = `<circle cx="${x.toFixed(1)}" cy="${y.toFixed(1)}" r="4" fill="${colour}"><title>${escaped(title)}</title></circle>`;
  const right = x > WIDTH - 160;
  return name === "" ? [dot] : [dot, label(right ? x - 8 : x + 8, y - 6, name, right ? "end" : "start")];
}

const short = (value: number) => (Math.abs(value) < 1000 ? String(Number(value.toPrecision(4))) : value.toFixed(0));

const label = (x: number, y: number, text: string, anchor = "start") =>
  `<text x="${x.toFixed(1)}" y="${y.toFixed(1)}" text-anchor="${anchor}" fill="#10202a">${escaped(text)}</text>`;

const escaped = (text: string) =>
  text.replace(/[&<>"']/g, (letter) => `&#${letter.charCodeAt(0)};`).replace(/\p{Cc}/gu, " ");
