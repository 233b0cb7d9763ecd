/** Cuts an answer that is being written into what a screen reader says at once: sentences and lines. */
export class Sentences {
  #said = 0;

  /** @returns what has become whole with the text so far, and with the last one what is left */
  next(text: string, last = false): string[] {
    const rest = text.slice(this.#said);
    const end = last ? rest.length : endOf(rest);
    this.#said += end;
    return rest
      .slice(0, end)
      .split("\n")
      .map((line) => line.trim())
      .filter(Boolean);
  }
}

/** Behind the last sentence or line that has ended. */
function endOf(text: string): number {
  let end = 0;
  for (const { index, 0: found } of text.matchAll(/[.!?…؟](?=\s)|[。！？।]|\n/g)) end = index + found.length;
  return end;
}
