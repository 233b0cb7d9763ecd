/**
 * The engine's session of the conversation that is open. It is saved with the conversation, so that going on another day computes nothing
 * again; what cannot be saved or restored costs time alone, and the caller is told why.
 */

import { forgetSession, keepSession, savedSession } from "./store.js";

/** Larger ones are saved when the conversation is left, not after every answer. */
const SOON = 64e6;

export class Live {
  #model = null;
  #id = null;
  #session = null;
  #changed = false;
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

  /** A session that holds a beginning of these messages, as long as one can be had. */
  async take(model, id, messages) {
    if (this.#model !== model || this.#id !== id) await this.#open(model, id);
    if (this.#session && !begins(this.#session.messages, messages)) {
      // Blocks that both have are found again in the engine's cache.
      await this.#session.close();
      this.#session = null;
    }
    this.#session ??= model.session();
    this.#changed = true;
    return this.#session;
  }

  /** Takes up the session that was saved of a conversation. */
  async #open(model, id) {
    await this.leave();
    [this.#model, this.#id] = [model, id];
    const bytes = await savedSession(id).catch(() => undefined);
    if (!bytes) return;
    try {
      this.#session = await model.restoreSession(bytes);
    } catch (error) {
      // Of another model it is of no use here, and is kept for the one that it is of.
      if (error.code === "WrongModel") return;
      await forgetSession(id).catch(() => {});
      this.#told(error);
    }
  }

  /** The session of one conversation goes on in another, which begins with all of its messages. */
  async fork(from, id) {
    if (!this.#session || this.#id !== from) return;
    const fork = await this.#session.fork();
    const model = this.#model;
    await this.leave();
    [this.#model, this.#id, this.#session, this.#changed] = [model, id, fork, true];
  }

  /** After an answer. */
  answered(bytesPerToken) {
    if (this.tokensOf(this.#id) * bytesPerToken <= SOON) this.save();
  }

  save() {
    this.#saving = this.#saving.then(() => this.#save()).catch(this.#told);
    return this.#saving;
  }

  async #save() {
    const [session, id] = [this.#session, this.#id];
    if (!session || !this.#changed || session.messages === null) return;
    this.#changed = false;
    await keepSession(id, await session.save());
  }

  /** The conversation is no longer open. */
  async leave() {
    await this.save();
    await this.#session?.close().catch(() => {});
    this.#drop();
  }

  /** Its model is gone, and the session with it. */
  #drop() {
    [this.#model, this.#id, this.#session, this.#changed] = [null, null, null, false];
  }
}

const begins = (held, messages) =>
  held !== null &&
  held.length <= messages.length &&
  held.every(({ role, content }, at) => role === messages[at].role && content === messages[at].content);
