/** Several texts written at once by one model: how fast each goes, and all together. */

import { style } from "./dom.js";
import { duration, rate, tokens } from "./format.js";
import { Run } from "./speed.js";

await style(new URL("./several.css", import.meta.url));

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
    const started = performance.now();
    const streams = beginnings.map((given) => this.#stream(given));
    this.#list.replaceChildren(...streams.map(({ item }) => item));
    let frame = requestAnimationFrame(function paint() {
      for (const stream of streams) stream.show();
      frame = requestAnimationFrame(paint);
    });
    const total = setInterval(() => this.#showTotal(streams, started), 100);
    try {
      const ended = await Promise.all(
        streams.map(async (stream, index) => {
          const ids = await model.tokenize(opening + stream.given);
          const generation = model.generate(ids, { ...options, seed: options.seed + index });
          signal.addEventListener("abort", () => generation.stop());
          if (signal.aborted) generation.stop();
          for await (const piece of generation) stream.push(piece);
          const end = await generation.finished;
          stream.finish(end.timings);
          return end;
        }),
      );
      const count = ended.reduce((sum, { tokens }) => sum + tokens.length, 0);
      const ms = performance.now() - started;
      return `${ended.length} texts, ${tokens(count)} in ${duration(ms)}: ${rate((count * 1000) / ms)} tokens/s together`;
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
      show() {
        if (waiting !== "") written.appendData(waiting);
        waiting = "";
        const decode = timings?.predictedPerSecond || run.decode;
        const pace = decode ? ` · ${rate(decode)} tokens/s` : "";
        figure.textContent = run.count > 0 ? tokens(run.count) + pace : "Waiting";
      },
    };
  }
}
