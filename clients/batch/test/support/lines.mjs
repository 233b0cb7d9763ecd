/** Lines, and the answers of a simulated engine, which follow from a line alone. */
import { createHash } from "node:crypto";

export const IDENTITY = "0123456789abcdef0123456789abcdef";

export const line = (index) => ({ index, text: JSON.stringify({ prompt: `line ${index}` }) });

export async function* rows(count) {
  const BLOCK = 300;
  for (let at = 0; at < count; at += BLOCK) {
    yield Array.from({ length: Math.min(BLOCK, count - at) }, (_, i) => line(at + i));
  }
}

const answer = ({ index, text }, by) => {
  const hash = createHash("sha256").update(text).digest("hex");
  return { text: JSON.stringify({ custom_id: `line-${index + 1}`, answer: hash, by }), failed: index % 50 === 49 };
};

/** What one undisturbed process writes. */
export function expected(count) {
  const answers = Array.from({ length: count }, (_, index) => answer(line(index)));
  const file = (failed) =>
    answers
      .filter((one) => one.failed === failed)
      .map(({ text }) => `${text}\n`)
      .join("");
  return { out: file(false), errors: file(true) };
}

/** Places of an engine: who finds none waits, in order. */
class Places {
  #free;
  #waiting = [];

  constructor(count) {
    this.#free = count;
  }

  async in(work) {
    if (this.#free > 0) this.#free--;
    else await new Promise((resolve) => this.#waiting.push(resolve));
    try {
      return await work();
    } finally {
      const next = this.#waiting.shift();
      if (next) next();
      else this.#free++;
    }
  }
}

/** @param ms of a line; another takes two or three times as long. @param places lines that are computed at once. @param by who tells so in its answers */
export const answering = ({ ms = 0, poison, by, places = Infinity, engine = new Places(places) } = {}) => ({
  identity: IDENTITY,
  lines: {
    async answer(line) {
      if (line.index === poison) process.kill(process.pid, "SIGKILL");
      const time = ms * (1 + (line.index % 3));
      if (ms > 0) await engine.in(() => new Promise((resolve) => setTimeout(resolve, time)));
      return answer(line, by);
    },
    async lost(line) {
      const error = { code: "worker_lost", message: "lost" };
      return { text: JSON.stringify({ custom_id: `line-${line.index + 1}`, response: null, error }), failed: true };
    },
  },
});
