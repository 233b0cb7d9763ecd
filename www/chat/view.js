/** The chat: the conversation that is open, what is kept of it, and everything that can be done with its messages. */

import { download, pickFile, problem, refill, style, textOf } from "../dom.js";
import { scrolled } from "../views.js";
import { Live } from "./live.js";
import { ChatPanel } from "./panel.js";
import * as store from "./store.js";
import { exported, imported, MAX_BYTES } from "./transfer.js";
import { add, branch, choose, messagesTo, newConversation, pathTo, takeBack, versions } from "./tree.js";
import { answerOf, turnOf } from "./turns.js";

/** Of an attached file: more than any context holds. */
const MAX_FILE = 1e6;

await Promise.all(["./chat.css", "../rows.css"].map((name) => style(new URL(name, import.meta.url))));

export class ChatView {
  panel;
  #log;
  #element;
  #host;
  #panel;
  #conversation = newConversation();
  #files = [];
  #live;
  #answering = false;

  /**
   * @param log what scrolls, `element` in it holds the turns
   * @param host { model(), start(request), say(words), fail(error), prompt }: the page
   */
  constructor(log, element, host) {
    [this.#log, this.#element, this.#host] = [log, element, host];
    this.#live = new Live((error) => host.fail(error, "The conversation is here, but its session was not kept. "));
    this.#panel = new ChatPanel({
      open: (id) => this.#try(() => this.#openKept(id)),
      remove: (id) => this.#try(() => this.#remove(id)),
      exportAll: () => this.#try(() => this.#export()),
      importFile: () => this.#try(() => this.#import()),
      attach: () => this.#try(() => this.#attach()),
      detach: (file) => this.#setFiles(this.#files.filter((one) => one !== file)),
      system: (text) => this.#system(text),
    });
    this.panel = this.#panel.element;
    // A page that is hidden may never be shown again; meanwhile other tabs keep conversations of their own.
    document.addEventListener("visibilitychange", () => (document.hidden ? this.#live.save() : this.#list()));
    this.#draw();
    this.#list();
  }

  /** Begins an empty conversation. */
  clear() {
    this.#show(newConversation(this.#conversation.system));
  }

  /** All that is kept was deleted. What is being answered stays, and is kept again with its answer. */
  async forgotten() {
    if (this.#answering) return this.#host.say("The conversation that is being answered stays");
    await this.#live.forget();
    this.clear();
  }

  /** The model goes: what it holds of the conversation is saved first. */
  leave() {
    return this.#live.leave();
  }

  /**
   * Asks the model: `{ text }` goes on, `{ edit, text }` asks another question in the place of one, `{ answer }` wants an answer, or another,
   * to a question. What was computed of the messages before is not computed again.
   */
  async begin(model, { text, edit, answer }, { options }) {
    const conversation = this.#conversation;
    const before = conversation.leaf;
    const files = this.#files;
    if (answer === undefined) this.#ask(text, edit);
    else conversation.leaf = answer;
    const asked = conversation.leaf;
    this.#answering = true;
    const ended = () => {
      this.#answering = false;
      this.#live.ended(model.info.memory.kv / model.info.contextLength);
    };
    const giveUp = () => {
      if (answer === undefined) takeBack(conversation, before);
      else conversation.leaf = before;
      ended();
      this.#draw();
      // Where nothing can be kept, that has been said.
      this.#keep(conversation).catch(() => {});
    };
    try {
      // Before the answer, whose end the page may not see.
      if (answer === undefined) await this.#try(() => this.#keep(conversation));
      const messages = messagesTo(conversation, asked);
      await fits(model, messages);
      const session = await this.#live.take(model, conversation.id, messages);
      // A full context goes on: the oldest turns are left out, and the answer says so.
      const generation = session.chat(messages, { ...options, onContextFull: "shift" });
      const own = edit === undefined && answer === undefined;
      if (own) this.#setFiles([]);
      this.#draw();
      const { turn, writer } = answerOf(this.#log);
      this.#element.append(turn);
      this.#log.scrollTop = this.#log.scrollHeight;
      const settle = (written, finished) => {
        // An answer of no words is no turn: templates want roles to alternate.
        if (!written) {
          if (own) this.#setFiles(files);
          return giveUp();
        }
        add(conversation, asked, { role: "assistant", content: written, speed: speedOf(finished) });
        ended();
        this.#draw();
        this.#try(() => this.#keep(conversation));
      };
      return { generation, writer, promptTokens: null, settle };
    } catch (error) {
      giveUp();
      throw error;
    }
  }

  /** Adds a question: below the last message, or as another version of one. */
  #ask(text, edit) {
    const conversation = this.#conversation;
    const { nodes, leaf } = conversation;
    // One that had no answer makes way, too: templates want roles to alternate.
    const other = nodes[edit ?? (nodes[leaf]?.role === "user" ? leaf : null)];
    const files = edit === undefined ? this.#files : (other.files ?? []);
    if (text.trim() === "" && files.length === 0) throw problem("NoMessage", "the message has no text and no file");
    const message = { role: "user", content: text, ...(files.length > 0 ? { files } : {}) };
    add(conversation, other ? other.parent : leaf, message);
  }

  async #keep(conversation) {
    if (await store.keep(conversation)) {
      this.#panel.note(
        "Another tab went on with this chat: from here on this one is a chat of its own, and the other is kept.",
      );
    }
    await this.#list();
  }

  #show(conversation) {
    this.#conversation = conversation;
    this.#panel.showSystem(conversation.system);
    this.#panel.note("");
    this.#setFiles([]);
    this.#draw();
    this.#list();
  }

  #draw() {
    const conversation = this.#conversation;
    const path = pathTo(conversation, conversation.leaf);
    const acts = {
      copy: (text) => this.#try(() => this.#copy(text)),
      edit: (edit, text) => this.#host.start({ edit, text }),
      // Its button goes while the answer is written.
      answer: (answer) => this.#host.start({ answer }) && this.#log.focus({ preventScroll: true }),
      branch: (number) => this.#try(() => this.#branch(number)),
      choose: (number) => this.#try(() => this.#choose(number)),
    };
    const turns = path.map((at) =>
      turnOf(conversation.nodes[at], at, versions(conversation, at), acts, at === conversation.leaf),
    );
    scrolled(this.#log, () => refill(this.#element, turns, this.#log));
    this.#panel.showContext(this.#live.tokensOf(conversation.id), this.#host.model()?.info.contextLength ?? 1);
  }

  async #list() {
    // A browser that keeps nothing for a page says so at the first answer.
    this.#panel.showList(await store.conversations().catch(() => []), this.#conversation.id);
  }

  async #openKept(id) {
    const found = (await store.conversations()).find((one) => one.id === id);
    if (found) {
      this.#show(found);
      this.#host.prompt.focus();
    }
    this.#host.say(found ? "Conversation opened" : "This conversation was deleted in another tab");
  }

  async #remove(id) {
    await this.#live.forget(id);
    await store.forget(id);
    if (id === this.#conversation.id) return this.clear();
    await this.#list();
  }

  async #export() {
    const all = await store.conversations();
    download(
      `ternlight-conversations-${new Date().toISOString().slice(0, 10)}.json`,
      exported(all),
      "application/json",
    );
    this.#host.say(`${all.length} conversations exported`);
  }

  async #import() {
    const file = await pickFile(".json,application/json");
    if (!file) return;
    const found = imported(await textOf(file, MAX_BYTES));
    for (const one of found) await store.keep(one);
    await this.#list();
    this.#host.say(`${found.length} conversations imported`);
  }

  async #attach() {
    const file = await pickFile("");
    if (!file) return;
    this.#setFiles([...this.#files, { name: file.name, text: await textOf(file, MAX_FILE) }]);
    this.#host.prompt.focus();
  }

  #setFiles(files) {
    this.#files = files;
    this.#panel.showFiles(files);
  }

  #system(text) {
    this.#conversation.system = text;
    if (this.#conversation.nodes.length > 0) this.#try(() => this.#keep(this.#conversation));
  }

  async #copy(text) {
    await navigator.clipboard.writeText(text);
    this.#host.say("Copied");
  }

  async #branch(number) {
    const made = branch(this.#conversation, number);
    // What the session holds goes on in both; up to an earlier message the engine finds it again.
    if (number === this.#conversation.leaf) await this.#live.fork(this.#conversation.id, made.id);
    await store.keep(made);
    this.#show(made);
    this.#host.say("A new chat goes on from here; the other one is kept");
    this.#host.prompt.focus();
  }

  async #choose(number) {
    choose(this.#conversation, number);
    this.#draw();
    await this.#keep(this.#conversation);
  }

  #try(work) {
    return work().catch((error) => this.#host.fail(error));
  }
}

/** What is asked must fit by itself, with the system prompt; only what was said before may be left out. */
async function fits(model, messages) {
  const alone = messages.filter(({ role }, at) => role === "system" || at === messages.length - 1);
  const [needed, { contextLength }] = [await model.countTokens(alone), model.info];
  if (needed < contextLength) return;
  throw problem(
    "ContextFull",
    `the question has ${needed} tokens with its system prompt, and the context ${contextLength}`,
  );
}

const speedOf = ({ timings, droppedMessages = 0 }) => ({
  written: timings.predictedN,
  perSecond: timings.predictedPerSecond,
  computed: timings.promptN + (timings.recomputedN ?? 0),
  found: timings.cachedN,
  dropped: droppedMessages,
});
