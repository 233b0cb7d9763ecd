/** What the Output shows: a prompt that is written on. Other views come when they are opened. */

/** Changes what lies in the scrolling `log`. Who reads further up is left there. */
export function scrolled(log, change) {
  const { scrollTop, clientHeight, scrollHeight } = log;
  const atEnd = scrollTop + clientHeight >= scrollHeight - 24;
  change();
  if (atEnd) log.scrollTop = log.scrollHeight;
}

/** Writes into `element`, which lies in the log: what has come, once a frame. */
export function writerTo(log, element) {
  const text = new Text();
  let waiting = "";
  element.append(text);
  log.scrollTop = log.scrollHeight;
  return {
    push(piece) {
      waiting += piece;
    },
    flush() {
      if (waiting !== "") scrolled(log, () => text.appendData(waiting));
      waiting = "";
    },
  };
}

export class TextView {
  #log;
  #element;

  constructor(log, element) {
    this.#log = log;
    this.#element = element;
  }

  clear() {
    this.#element.replaceChildren();
  }

  /** Starts to write on from a prompt. */
  async begin(model, { text }, { opening, options }) {
    const [given, written] = ["given", "written"].map((name) => {
      const part = document.createElement("span");
      part.className = name;
      return part;
    });
    given.append(text);
    this.#element.replaceChildren(given, written);
    const writer = writerTo(this.#log, written);
    const ids = await model.tokenize(opening + text);
    return { generation: model.generate(ids, options), writer, promptTokens: ids.length, settle() {} };
  }
}
