/** The chat: the conversation that is open, what is kept of it, and everything that can be done with its messages. */

import { download, pickFile, problem, style, textOf } from "../dom.js";
import { scrolled } from "../views.js";
import { Live } from "./live.js";
import { ChatPanel } from "./panel.js";
import * as store from "./store.js";
import { exported, imported, MOST_BYTES } from "./transfer.js";
import { add, branch, choose, messagesTo, newConversation, pathTo, takeBack, versions } from "./tree.js";
import { answerOf, turnOf } from "./turns.js";

/** Of an attached file: more than any context holds. */
const MOST_FILE = 1e6;

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
    // A page that is hidden may never be shown again.
    document.addEventListener("visibilitychange", () => document.hidden && this.#live.save());
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
   * Asks the model: `{ text }` goes on, `{ edit, text }` asks another question in the place of one, `{ again }` wants another answer. What
   * was computed of the messages before is not computed again.
   */
  async begin(model, { text, edit, again }, { options }) {
    const conversation = this.#conversation;
    const before = conversation.leaf;
    let asked = again === undefined ? null : conversation.nodes[again].parent;
    const files = this.#files;
    if (asked === null) {
      const parent = edit === undefined ? before : conversation.nodes[edit].parent;
      const kept = edit === undefined ? files : (conversation.nodes[edit].files ?? []);
      asked = add(conversation, parent, { role: "user", content: text, ...(kept.length > 0 ? { files: kept } : {}) });
    } else conversation.leaf = asked;
    this.#answering = true;
    const ended = () => {
      this.#answering = false;
      this.#live.ended(model.info.memory.kv / model.info.contextLength);
    };
    const giveUp = () => {
      if (again === undefined) takeBack(conversation, before);
      else conversation.leaf = before;
      ended();
      this.#draw();
    };
    try {
      const messages = messagesTo(conversation, asked);
      await fits(model, messages);
      const session = await this.#live.take(model, conversation.id, messages);
      // A full context goes on: the oldest turns are left out, and the answer says so.
      const generation = session.chat(messages, { ...options, onContextFull: "shift" });
      if (edit === undefined && again === undefined) this.#setFiles([]);
      this.#draw();
      const { turn, writer } = answerOf(this.#log);
      this.#element.append(turn);
      this.#log.scrollTop = this.#log.scrollHeight;
      const settle = (written, finished) => {
        // An answer of no words is no turn: templates want roles to alternate.
        if (!written) {
          if (edit === undefined && again === undefined) this.#setFiles(files);
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

  async #keep(conversation) {
    await store.keep(conversation);
    await this.#list();
  }

  #show(conversation) {
    this.#conversation = conversation;
    this.#panel.showSystem(conversation.system);
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
      again: (again) => this.#host.start({ again }),
      branch: (number) => this.#try(() => this.#branch(number)),
      choose: (number) => this.#try(() => this.#choose(number)),
    };
    const turns = path.map((at) => turnOf(conversation.nodes[at], at, versions(conversation, at), acts));
    scrolled(this.#log, () => this.#element.replaceChildren(...turns));
    this.#panel.showContext(this.#live.tokensOf(conversation.id), this.#host.model()?.info.contextLength ?? 1);
  }

  async #list() {
    // A browser that keeps nothing for a page says so at the first answer.
    this.#panel.showList(await store.conversations().catch(() => []), this.#conversation.id);
  }

  async #openKept(id) {
    const found = (await store.conversations()).find((one) => one.id === id);
    if (found) this.#show(found);
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
    const found = imported(await textOf(file, MOST_BYTES));
    for (const one of found) await store.keep(one);
    await this.#list();
    this.#host.say(`${found.length} conversations imported`);
  }

  async #attach() {
    const file = await pickFile("");
    if (!file) return;
    this.#setFiles([...this.#files, { name: file.name, text: await textOf(file, MOST_FILE) }]);
    this.#host.prompt.focus();
  }

  #setFiles(files) {
    this.#files = files;
    this.#panel.showFiles(files);
  }

  #system(text) {
    this.#conversation.system = text;
    if (this.#conversation.nodes.length > 0) this.#try(() => store.keep(this.#conversation));
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
