/** Tells screen readers an answer while it is written: what has become whole of it, sentence by sentence. */

/** Behind a sentence or a line. */
const END = /[.!?…؟](?=\s)|[。！？।]|\n/g;

export class Speech {
  #region;
  #text = "";
  #said = 0;

  /** @param region is a live one, whose additions are read out */
  constructor(region) {
    this.#region = region;
    region.replaceChildren();
  }

  push(piece) {
    this.#text += piece;
    const ends = [...this.#text.slice(this.#said).matchAll(END)];
    const last = ends.at(-1);
    if (last) this.#say(this.#said + last.index + last[0].length);
  }

  /** What is left is said, too. */
  end() {
    this.#say(this.#text.length);
  }

  #say(end) {
    const part = this.#text.slice(this.#said, end).trim();
    this.#said = end;
    if (part === "") return;
    const sentence = document.createElement("p");
    sentence.append(part);
    this.#region.append(sentence);
  }
}
