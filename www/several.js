/** Several texts written at once by one model: how fast each goes, and all together. */

import { style } from "./dom.js";
import { duration, rate, tokens } from "./format.js";
import { explain } from "./problems.js";
import { Run } from "./speed.js";

await style(new URL("./several.css", import.meta.url));

/** Seeds one after the other; 0 comes behind the largest. */
function seedAt(first, index) {
  const left = Number.MAX_SAFE_INTEGER - first;
  return index <= left ? first + index : index - left - 1;
}

/** Writes one text to its end. What goes wrong with it is said in its place. */
async function write(model, stream, options, opening, signal) {
  try {
    const generation = model.generate(await model.tokenize(opening + stream.given), options);
    signal.addEventListener("abort", () => generation.stop());
    if (signal.aborted) generation.stop();
    for await (const piece of generation) stream.push(piece);
    const end = await generation.finished;
    stream.finish(end.timings);
    return end;
  } catch (error) {
    const { title, advice } = explain(error);
    stream.fail(`${title} ${advice}`);
    throw error;
  }
}

export class Several {
  #lines;
  #list;
  #total;

  /** @param elements { lines, list, total } */
  constructor({ lines, list, total }) {
    [this.#lines, this.#list, this.#total] = [lines, list, total];
  }

  /** Writes on from every line, each with a seed of its own. Answers with what happened, in words. */
  async run(model, { options, opening }, signal) {
    const beginnings = this.#lines.value.split("\n").filter((line) => line.trim() !== "");
    if (beginnings.length === 0) return "There is no beginning to write on from";
    const started = performance.now();
    const streams = beginnings.map((given) => this.#stream(given));
    this.#list.replaceChildren(...streams.map(({ item }) => item));
    let frame = requestAnimationFrame(function paint() {
      for (const stream of streams) stream.show();
      frame = requestAnimationFrame(paint);
    });
    const total = setInterval(() => this.#showTotal(streams, started), 100);
    try {
      const settled = await Promise.allSettled(
        streams.map((stream, index) =>
          write(model, stream, { ...options, seed: seedAt(options.seed, index) }, opening, signal),
        ),
      );
      const ended = settled.filter(({ status }) => status === "fulfilled");
      // What ails all of them ails the model, or the settings.
      if (ended.length === 0) throw settled[0].reason;
      const count = ended.reduce((sum, { value }) => sum + value.tokens.length, 0);
      const ms = performance.now() - started;
      const texts = `${ended.length}${ended.length < settled.length ? ` of ${settled.length}` : ""} texts`;
      return `${texts}, ${tokens(count)} in ${duration(ms)}: ${rate((count * 1000) / ms)} tokens/s together`;
    } finally {
      cancelAnimationFrame(frame);
      clearInterval(total);
      for (const stream of streams) stream.show();
      this.#showTotal(streams, started);
    }
  }

  #showTotal(streams, started) {
    const count = streams.reduce((sum, { run }) => sum + run.count, 0);
    this.#total.textContent = rate((count * 1000) / (performance.now() - started));
  }

  #stream(given) {
    const item = document.createElement("li");
    const [text, figure] = [document.createElement("p"), document.createElement("p")];
    const begun = document.createElement("span");
    begun.className = "given";
    begun.textContent = given;
    const written = new Text();
    text.append(begun, written);
    figure.className = "quiet";
    item.append(text, figure);
    const run = new Run(null);
    let waiting = "";
    let timings = null;
    let failure = "";
    return {
      item,
      given,
      run,
      push(piece) {
        run.add(piece.tokens.length);
        waiting += piece.text;
      },
      /** The engine's own times count at the end: a busy page may get every token in one message. */
      finish(measured) {
        run.end();
        timings = measured;
      },
      fail(words) {
        run.end();
        failure = words;
      },
      show() {
        if (waiting !== "") written.appendData(waiting);
        waiting = "";
        const decode = timings?.predictedPerSecond || run.decode;
        const pace = decode ? ` · ${rate(decode)} tokens/s` : "";
        figure.textContent = failure || (run.count > 0 ? tokens(run.count) + pace : "Waiting");
      },
    };
  }
}
