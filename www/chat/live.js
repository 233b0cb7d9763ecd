/**
 * The engine's session of the conversation that is open. It is saved with the conversation, so that going on another day computes nothing
 * again; what cannot be saved or restored costs time alone, and the caller is told why.
 */

import { forgetSession, keepSession, savedKeys, savedSession } from "./store.js";

/** Larger ones are saved when the conversation is left, not after every answer. */
const SOON = 64e6;

export class Live {
  #model = null;
  #id = null;
  /** What its session is saved under. */
  #key = null;
  #session = null;
  /** How often it was taken for an answer, and how often when it was saved last. */
  #taken = 0;
  #kept = 0;
  /** Whether an answer is being written, and whether it is to be saved behind it. */
  #busy = false;
  #due = false;
  #saving = Promise.resolve();
  #told;

  /** @param told called with an error that cost a saved session */
  constructor(told) {
    this.#told = told;
  }

  /** Tokens that the session of a conversation holds; 0 where the model has not read it yet. */
  tokensOf(id) {
    return id === this.#id ? (this.#session?.tokens.length ?? 0) : 0;
  }

  /** A session that holds a beginning of these messages, as long as one can be had. `ended` gives it back. */
  async take(model, id, messages) {
    if (this.#model !== model || this.#id !== id) await this.#open(model, id);
    if (this.#session && !begins(this.#session.messages, messages)) {
      // Blocks that both have are found again in the engine's cache.
      await this.#session.close();
      this.#session = null;
    }
    this.#session ??= model.session();
    this.#taken++;
    this.#busy = true;
    return this.#session;
  }

  /** The answer has ended, with words or without. */
  ended(bytesPerToken) {
    this.#busy = false;
    if (this.#due || this.tokensOf(this.#id) * bytesPerToken <= SOON) this.save();
    this.#due = false;
  }

  /** Takes up the session that was saved of a conversation. Each model that has answered in it has its own. */
  async #open(model, id) {
    await this.leave();
    [this.#model, this.#id] = [model, id];
    const keys = await savedKeys(id).catch(() => []);
    for (const key of keys) {
      const bytes = await savedSession(key).catch(() => undefined);
      if (!bytes) continue;
      try {
        this.#session = await model.restoreSession(bytes);
        this.#key = key;
        return;
      } catch (error) {
        if (error.code === "WrongModel") continue;
        await forgetSession(key).catch(() => {});
        this.#told(error);
      }
    }
    this.#key = id;
    for (let i = 1; keys.includes(this.#key); i++) this.#key = `${id} ${i}`;
  }

  /** The session of one conversation goes on in another, which begins with all of its messages. */
  async fork(from, id) {
    if (!this.#session || this.#id !== from) return;
    const fork = await this.#session.fork();
    const model = this.#model;
    await this.leave();
    [this.#model, this.#id, this.#key, this.#session, this.#taken] = [model, id, id, fork, 1];
  }

  /** Saves what has changed: now, or behind the answer that is being written, as the engine saves no session that is at work. */
  save() {
    this.#saving = this.#saving.then(() => this.#save()).catch(this.#told);
    return this.#saving;
  }

  async #save() {
    const [session, key, taken] = [this.#session, this.#key, this.#taken];
    if (this.#busy) this.#due = true;
    if (!session || this.#busy || this.#kept === taken || session.messages === null) return;
    await keepSession(key, await session.save());
    this.#kept = taken;
  }

  /** The conversation is no longer open. */
  async leave() {
    await this.save();
    await this.#drop();
  }

  /** Conversations are deleted: this one, or all. What is open of them is not saved any more. */
  async forget(id = this.#id) {
    await this.#saving;
    if (id === this.#id) await this.#drop();
  }

  async #drop() {
    const session = this.#session;
    [this.#model, this.#id, this.#key, this.#session, this.#taken, this.#kept] = [null, null, null, null, 0, 0];
    [this.#busy, this.#due] = [false, false];
    await session?.close().catch(() => {});
  }
}

const begins = (held, messages) =>
  held !== null &&
  held.length <= messages.length &&
  held.every(({ role, content }, at) => role === messages[at].role && content === messages[at].content);
