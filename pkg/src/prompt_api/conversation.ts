/** What a `LanguageModel` holds: messages, and the session of the engine that has computed them. */

import { chatParts } from "../integration/parts.ts";
import { unlessAborted } from "../integration/signals.ts";
import type { ChatMessage, ChatOptions, Finished, Model, Session } from "../types/index.ts";
import { quotaExceeded } from "./errors.ts";
import type { LanguageModelTool } from "./idl.ts";
import type { TextMessage } from "./prompts.ts";

/** The most answers to one prompt, calls of tools between them. */
const MAX_ROUNDS = 16;

export class Conversation {
  readonly model: Model;
  readonly #tools: readonly LanguageModelTool[];
  /** Shown to the template. */
  readonly #described: readonly object[];
  #messages: readonly ChatMessage[];
  #session: Session | null;
  /** Messages that never go: those that it was created with. */
  #initial = 0;
  /** Tokens of the tools, which the template describes to the model. */
  #ofTools = 0;
  /** Tokens of the tools and the messages. */
  usage = 0;

  constructor(
    model: Model,
    tools: readonly LanguageModelTool[],
    messages: readonly ChatMessage[] = [],
    session: Session | null = null,
  ) {
    this.model = model;
    this.#tools = tools;
    this.#described = tools.map(({ name, description, inputSchema }) => ({
      type: "function",
      function: { name, description, parameters: inputSchema },
    }));
    this.#messages = messages;
    this.#session = session;
  }

  get window(): number {
    return this.model.info.contextLength;
  }

  /** Whether it holds a message. */
  get begun(): boolean {
    return this.#messages.length > 0;
  }

  /** Takes in what it is created with: the tools, and messages that are computed ahead. */
  async begin(initial: readonly TextMessage[], signal: AbortSignal): Promise<void> {
    if (this.#described.length > 0) {
      const none = [{ role: "user", content: "" }];
      const without = await this.model.countTokens(none, { addGenerationPrompt: false });
      this.#ofTools = (await this.#count(none)) - without;
      this.usage = this.#ofTools;
    }
    if (initial.length > 0) await this.add(initial, () => {}, signal);
    else if (this.usage > 0) await this.#fit([{ role: "user", content: "" }], () => {});
    this.#initial = initial.length;
  }

  /** Tokens that these messages add. */
  async measure(added: readonly ChatMessage[]): Promise<number> {
    return (await this.#count([...this.#messages, ...added])) - (await this.#count(this.#messages));
  }

  /**
   * Takes messages in. Where they do not fit, the oldest prompts go, with their answers, and never the first ones.
   *
   * @param overflowed is called when some have gone
   * @param signal of who waits: with it what has come is computed ahead, so that the next answer begins at once
   */
  async add(given: readonly TextMessage[], overflowed: () => void, signal?: AbortSignal): Promise<void> {
    const added = given.map(({ prefix, ...message }) => message);
    await this.#fit(added, overflowed);
    if (signal) {
      const options = { ...this.#toolOptions(), signal, maxTokens: 1, temperature: 0 };
      await this.model.chat([...this.#messages, ...added], options).finished;
    }
    this.#messages = [...this.#messages, ...added];
    this.usage = await this.#count(this.#messages);
  }

  /** Answers a prompt. Where that fails the conversation is as it was. */
  async *answer(
    given: readonly TextMessage[],
    options: ChatOptions,
    overflowed: () => void,
  ): AsyncGenerator<string, Finished> {
    const before = { messages: this.#messages, usage: this.usage };
    const last = given.at(-1)!;
    const added = (last.prefix ? given.slice(0, -1) : given).map(({ prefix, ...message }) => message);
    let done = false;
    try {
      await this.#fit(added, overflowed, last.prefix ? last.content : "");
      const asked = [...this.#messages, ...added];
      const finished = last.prefix
        ? yield* this.#continued(asked, last.content, options)
        : yield* this.#written(asked, options, overflowed);
      done = true;
      return finished;
    } finally {
      // An abort or an error leaves no message.
      if (!done) {
        this.#drop();
        [this.#messages, this.usage] = [before.messages, before.usage];
      }
    }
  }

  /** Another conversation that goes on from here. Nothing is computed or copied for it. */
  async fork(): Promise<Conversation> {
    const session = (await this.#session?.fork()) ?? null;
    const fork = new Conversation(this.model, this.#tools, this.#messages, session);
    [fork.usage, fork.#initial, fork.#ofTools] = [this.usage, this.#initial, this.#ofTools];
    return fork;
  }

  close(): void {
    this.#drop();
  }

  /** Calls of tools are answered by their functions, all of an answer at once, until an answer calls none. */
  async *#written(
    asked: readonly ChatMessage[],
    options: ChatOptions,
    overflowed: () => void,
  ): AsyncGenerator<string, Finished> {
    let messages = asked;
    for (let round = 1; ; round++) {
      this.#session ??= this.model.session();
      const session = this.#session;
      let finished: Finished | undefined;
      // An answer that fills the context moves on in it, but not for ever. The engine spares the system's messages alone: where there
      // are others that must stay, it ends.
      const shift = this.#messages.slice(0, this.#initial).every(({ role }) => role === "system");
      const room = { onContextFull: shift ? ("shift" as const) : ("stop" as const), maxTokens: this.window };
      const given = { ...options, ...this.#toolOptions(), session, ...room };
      for await (const part of chatParts(this.model, messages, given)) {
        if (part.type === "text") yield part.text;
        if (part.type === "end") finished = part.finished;
      }
      this.#messages = session.messages ?? [];
      this.usage = session.tokens.length;
      if (finished!.droppedMessages) {
        this.#messages = this.#without(finished!.droppedMessages);
        this.#drop();
        overflowed();
      }
      const { toolCalls = [] } = finished!;
      if (toolCalls.length === 0 || options.responseFormat || round === MAX_ROUNDS) return finished!;
      const calls = Promise.all(
        toolCalls.map(async ({ id, name, arguments: input }) => {
          const tool = this.#tools.find((tool) => tool.name === name);
          // A model may write any name.
          const content = tool ? String(await tool.execute(input)) : `There is no tool ${JSON.stringify(name)}.`;
          return { role: "tool", name, content, ...(id && { tool_call_id: id }) };
        }),
      );
      // A function may never settle.
      const results = await (options.signal ? unlessAborted(calls, options.signal) : calls);
      messages = [...this.#messages, ...results];
    }
  }

  /** The answer goes on from a text that stands behind what begins the model's turn. */
  async *#continued(
    messages: readonly ChatMessage[],
    prefix: string,
    options: ChatOptions,
  ): AsyncGenerator<string, Finished> {
    const tools = this.#toolOptions();
    const turn = await this.model.tokenize(messages, tools);
    const begun = await this.model.tokenize(prefix, { addSpecial: false });
    const generation = this.model.generate([...turn, ...begun], options);
    for await (const { text } of generation) if (text !== "") yield text;
    const finished = await generation.finished;
    this.#messages = [...messages, { role: "assistant", content: prefix + finished.text }];
    this.#drop();
    this.usage = await this.#count(this.#messages);
    return finished;
  }

  /** Makes room for messages, and for an answer of one token at least. */
  async #fit(added: readonly ChatMessage[], overflowed: () => void, prefix = ""): Promise<void> {
    const tail = prefix === "" ? 0 : (await this.model.tokenize(prefix, { addSpecial: false })).length;
    const needed = async () => (await this.#count([...this.#messages, ...added], true)) + tail + 1;
    let [requested, evicted] = [await needed(), false];
    const [messages, usage] = [this.#messages, this.usage];
    while (requested > this.window) {
      const left = this.#without(1);
      if (left.length === this.#messages.length) {
        [this.#messages, this.usage] = [messages, usage];
        throw quotaExceeded(requested, this.window);
      }
      this.#messages = left;
      evicted = true;
      requested = await needed();
    }
    if (!evicted) return;
    this.#drop();
    this.usage = await this.#count(this.#messages);
    overflowed();
  }

  async #count(messages: readonly ChatMessage[], addGenerationPrompt = false): Promise<number> {
    if (messages.length === 0) return this.#ofTools;
    return this.model.countTokens(messages, { addGenerationPrompt, ...this.#toolOptions() });
  }

  #toolOptions(): { tools?: readonly object[] } {
    return this.#described.length > 0 ? { tools: this.#described } : {};
  }

  #drop(): void {
    void this.#session?.close().catch(() => {});
    this.#session = null;
  }

  /** The messages without the oldest, `count` at least, up to the next prompt. The first ones stay, and the system's. */
  #without(count: number): readonly ChatMessage[] {
    const messages = this.#messages;
    const others = messages.findIndex(({ role }) => role !== "system");
    if (others < 0) return messages;
    const first = Math.max(others, this.#initial);
    if (first >= messages.length) return messages;
    let end = first + count;
    while (end < messages.length && messages[end]!.role !== "user") end++;
    return [...messages.slice(0, first), ...messages.slice(end)];
  }
}
