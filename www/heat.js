/** Heat maps of a trace: where the time of a step goes, layer by layer. */

const NS = "http://www.w3.org/2000/svg";
const [CELL, GAP, LEFT, TOP] = [18, 1, 96, 18];
/** Columns of a numbered axis are named this far apart. */
const EVERY = 5;

/**
 * A picture of rows and columns of cells, each coloured by its value from `least` to `most`, with words for each.
 *
 * @param {{ title: string, rows: { name: string, cells: ({ value: number, words: string } | null)[] }[], most: number }} map
 */
export function heatMap({ title, rows, most }) {
  const columns = Math.max(...rows.map(({ cells }) => cells.length));
  const [width, height] = [LEFT + columns * (CELL + GAP), TOP + rows.length * (CELL + GAP)];
  const svg = make("svg", { class: "heat", viewBox: `0 0 ${width} ${height}`, width, height, role: "img" });
  svg.append(words("title", title));
  for (let column = 0; column < columns; column += EVERY) {
    svg.append(words("text", String(column), { x: LEFT + column * (CELL + GAP), y: TOP - 6 }));
  }
  for (const [i, { name, cells }] of rows.entries()) {
    const y = TOP + i * (CELL + GAP);
    svg.append(words("text", name, { x: 0, y: y + CELL - 5 }));
    for (const [column, cell] of cells.entries()) {
      if (!cell) continue;
      const place = { x: LEFT + column * (CELL + GAP), y, width: CELL, height: CELL };
      const strength = most > 0 ? Math.min(1, cell.value / most) : 0;
      const square = make("rect", { ...place, "fill-opacity": (0.06 + 0.94 * strength).toFixed(3) });
      square.append(words("title", cell.words));
      svg.append(square);
    }
  }
  const figure = document.createElement("figure");
  const caption = document.createElement("figcaption");
  caption.textContent = title;
  figure.append(caption, svg);
  return figure;
}

function make(name, attributes) {
  const element = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

function words(name, text, attributes = {}) {
  const element = make(name, attributes);
  element.textContent = text;
  return element;
}

/** The maps of a report's trace: milliseconds of operations by layer, and shares of unpacking of matrices by layer. */
export function heatMaps({ tokens, matrices, layers }) {
  const phases = [
    [`Milliseconds by layer, a prompt of ${tokens} tokens`, layers.prefill],
    ["Milliseconds by layer, a token", layers.decode],
  ];
  return [...phases.map(([title, phase]) => operationsMap(title, phase)), unpackingMap(matrices)];
}

function operationsMap(title, phase) {
  const inside = phase.filter(({ layer }) => layer !== null);
  const names = [...new Set(inside.flatMap(({ operations }) => Object.keys(operations)))];
  const rows = names.map((name) => ({
    name,
    cells: inside.map(({ layer, operations }) => {
      const found = operations[name];
      return found ? { value: found.ms, words: `${name}, layer ${layer}: ${found.ms.toFixed(4)} ms` } : null;
    }),
  }));
  const most = Math.max(...rows.flatMap(({ cells }) => cells.map((cell) => cell?.value ?? 0)));
  return heatMap({ title, rows, most });
}

function unpackingMap(matrices) {
  const placed = matrices.flatMap((matrix) => {
    const found = /^blk\.(\d+)\.(.+)$/.exec(matrix.name);
    return [{ ...matrix, layer: found ? Number(found[1]) : 0, kind: found ? found[2] : matrix.name }];
  });
  const rows = [...new Set(placed.map(({ kind }) => kind))].map((name) => {
    const cells = [];
    for (const { layer, kind, ms, readMs, unpackShare } of placed) {
      const share = `${(100 * unpackShare).toFixed(0)} %`;
      const said = `${name}, layer ${layer}: ${share} of ${ms.toFixed(4)} ms; its read alone takes ${readMs.toFixed(4)} ms`;
      if (kind === name && unpackShare !== null) cells[layer] = { value: unpackShare, words: said };
    }
    return { name, cells: Array.from(cells, (cell) => cell ?? null) };
  });
  return heatMap({ title: "Share of unpacking and multiplying in each matrix", rows, most: 1 });
}
