/** A session, as its caller sees it: ids in the engine, and the messages of a chat on this side. */

import { wrong } from "../options/check.ts";
import { checkCount, checkMessages } from "../options/options.ts";
import { EngineError } from "../types/errors.ts";
import type {
  AdapterUse,
  ChatMessage,
  ChatOptions,
  Finished,
  GenerateOptions,
  Generation,
  Prompt,
  Session,
} from "../types/index.ts";
import { type Caller, type Conversation, chat, generate } from "./answers.ts";
import { History } from "./history.ts";

export class OpenSession implements Session {
  readonly #caller: Caller;
  readonly #number: number;
  #tokens: readonly number[] = [];
  #history = new History();
  #closed = false;
  /** Those that it begins with, until the engine's session has them. */
  #adapters: readonly AdapterUse[] | undefined;
  /** Settles when the tokens are known after a generation that failed. */
  #asked: Promise<void> = Promise.resolve();

  constructor(caller: Caller, adapters?: readonly AdapterUse[]) {
    this.#caller = caller;
    this.#number = caller.fresh();
    this.#adapters = adapters;
  }

  async restore(saved: Uint8Array | ArrayBuffer): Promise<Session> {
    const given = saved instanceof ArrayBuffer ? new Uint8Array(saved) : saved;
    if (!(given instanceof Uint8Array)) throw wrong("restoreSession", "bytes", "what session.save() gave", given);
    const { bytes, history } = History.split(given);
    this.#history = history;
    this.#tokens = await this.#caller.client.call("restoreSession", this.#args({ bytes }));
    this.#adapters = undefined;
    history.rewind(this.#tokens.length);
    return this;
  }

  get tokens(): readonly number[] {
    return this.#tokens;
  }

  get messages(): readonly ChatMessage[] | null {
    return this.#history.messages;
  }

  generate(prompt: Prompt, options: GenerateOptions = {}): Generation {
    const before = this.#tokens.length;
    const conversation = this.#open(() => this.#tokens.length !== before && this.#history.lose());
    return generate(this.#caller, conversation, prompt, options);
  }

  chat(messages: readonly ChatMessage[], options: ChatOptions = {}): Generation {
    this.#check();
    const whole = this.#history.joined(checkMessages("chat", messages));
    const conversation = this.#open((finished) => finished && this.#history.keep(whole, finished, this.#tokens.length));
    return chat(this.#caller, conversation, whole, options);
  }

  async fork(): Promise<Session> {
    const fork = new OpenSession(this.#caller, this.#adapters);
    this.#check();
    fork.#history = this.#history.copy();
    fork.#tokens = await this.#caller.client.call("forkSession", { session: this.#number, as: fork.#number });
    return fork;
  }

  async rewind(count: number): Promise<void> {
    await this.#asked;
    checkCount("rewind", count, this.#tokens.length);
    this.#check();
    this.#tokens = await this.#caller.client.call("rewindSession", { session: this.#number, count });
    this.#history.rewind(this.#tokens.length);
  }

  async save(): Promise<Uint8Array<ArrayBuffer>> {
    this.#check();
    const history = this.#history.copy();
    return history.with((await this.#caller.client.call("saveSession", this.#args({}))) as Uint8Array<ArrayBuffer>);
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    const { client } = this.#caller;
    if (!client.over) await client.call("closeSession", { session: this.#number });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #args<T>(args: T): T & { session: number; adapters?: readonly AdapterUse[] } {
    return { ...args, session: this.#number, ...(this.#adapters && { adapters: this.#adapters }) };
  }

  #check(): void {
    if (this.#closed) throw new EngineError("Closed", "the session is closed");
  }

  /** @param then is called when the ids are known that are held after an answer, or after a failure */
  #open(then: (finished: Finished | null) => void): Conversation {
    this.#check();
    const session = this.#number;
    const onHeld = (held: readonly number[], finished: Finished | null = null) => {
      this.#tokens = held;
      if (finished) this.#adapters = undefined;
      then(finished);
    };
    const onFailed = () => {
      const held = () => this.#caller.client.call("heldSession", { session });
      if (!this.#closed) this.#asked = held().then(onHeld, () => {});
    };
    return { session, onHeld, onFailed, adapters: this.#adapters };
  }
}
