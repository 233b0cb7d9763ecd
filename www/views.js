/** What the Output shows: a prompt that is written on, or the turns of a chat. */

class Writer {
  #log;
  #text = new Text();
  #waiting = "";

  /** Writes into `element`, which lies in the scrolling `log`. */
  constructor(log, element) {
    this.#log = log;
    element.append(this.#text);
    log.scrollTop = log.scrollHeight;
  }

  push(text) {
    this.#waiting += text;
  }

  /** Once a frame. Who reads further up is left there. */
  flush() {
    if (this.#waiting === "") return;
    const { scrollTop, clientHeight, scrollHeight } = this.#log;
    const atEnd = scrollTop + clientHeight >= scrollHeight - 24;
    this.#text.appendData(this.#waiting);
    this.#waiting = "";
    if (atEnd) this.#log.scrollTop = this.#log.scrollHeight;
  }
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
  async begin(model, prompt, { opening, options }) {
    const given = tag("span", "given", prompt);
    const written = tag("span", "written");
    this.#element.replaceChildren(given, written);
    const writer = new Writer(this.#log, written);
    const ids = await model.tokenize(opening + prompt);
    return { generation: model.generate(ids, options), writer, promptTokens: ids.length, settle() {} };
  }
}

export class ChatView {
  #log;
  #element;
  #messages = [];

  constructor(log, element) {
    this.#log = log;
    this.#element = element;
  }

  /** Forgets the conversation. */
  clear() {
    this.#messages = [];
    this.#element.replaceChildren();
  }

  /** Says something. What was computed of the turns before is found again. */
  async begin(model, prompt, { options }) {
    const messages = [...this.#messages, { role: "user", content: prompt }];
    const asked = this.#turn("user", "You", prompt);
    const answer = this.#turn("assistant", "Model");
    const writer = new Writer(this.#log, answer.lastChild);
    const settle = (text) => {
      // An answer of no words is no turn: templates want roles to alternate.
      if (text) this.#messages = [...messages, { role: "assistant", content: text }];
      else for (const turn of [asked, answer]) turn.remove();
    };
    return { generation: model.chat(messages, options), writer, promptTokens: null, settle };
  }

  #turn(kind, who, text = "") {
    const turn = tag("article", `turn ${kind}`);
    turn.append(tag("h3", "", who), tag("p", "", text));
    this.#element.append(turn);
    return turn;
  }
}

function tag(name, className, text = "") {
  const element = document.createElement(name);
  if (className) element.className = className;
  if (text) element.append(text);
  return element;
}
