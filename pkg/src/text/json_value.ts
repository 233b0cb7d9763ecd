/** Finds the end of a JSON value that comes in parts, without waiting for it. */

export class JsonValue {
  #depth = 0;
  #string = false;
  #escaped = false;
  #begun = false;

  /** The index in `text` behind the value's last character, searched from `from` on; -1 where more of it is to come. */
  feed(text: string, from: number): number {
    for (let at = from; at < text.length; at++) {
      const char = text[at]!;
      if (this.#string) {
        if (this.#escaped) this.#escaped = false;
        else if (char === "\\") this.#escaped = true;
        else if (char === '"') {
          this.#string = false;
          if (this.#depth === 0) return at + 1;
        }
      } else if (char === '"') this.#string = true;
      else if (char === "{" || char === "[") this.#depth++;
      else if (char === "}" || char === "]") {
        // A number or a word ends before what closes its surroundings.
        if (this.#depth === 0) return at;
        if (--this.#depth === 0) return at + 1;
      } else if (this.#depth === 0 && (char === "," || /\s/.test(char))) {
        if (this.#begun || char === ",") return at;
        continue;
      }
      this.#begun = true;
    }
    return -1;
  }
}
