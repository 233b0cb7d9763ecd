/** `<ternlight-chat>`: a conversation with a model that runs in the page. */

import { MarkdownStream } from "../markdown/render.ts";
import type { ChatMessage, ChatOptions, Finished, LoadOptions, Model, ModelSource } from "../types/index.ts";
import { checkFits } from "./fits.ts";
import { type Engine, Loading, type LoadingStatus } from "./loading.ts";
import { Sentences } from "./speech.ts";
import { type ChatStrings, detailOf, ENGLISH, filled, problemOf, sizeText } from "./strings.ts";
import { type Notice, View } from "./view.ts";

/** What happens now: `answering`, or how far the model is. */
export type ChatState = LoadingStatus | "answering";

/** A server that renders pages has no elements. */
const Element = (globalThis.HTMLElement ?? class {}) as typeof HTMLElement;

const PROPERTIES = [
  ...(["src", "system", "confirm", "label", "placeholder"] as const),
  ...(["strings", "loadOptions", "chatOptions", "messages"] as const),
];

/** While letters are composed, keys belong to the input method; Safari tells the last one by its code alone. */
const composes = (event: KeyboardEvent): boolean => event.isComposing || event.keyCode === 229;

export abstract class ChatElement extends Element {
  static readonly observedAttributes: readonly string[] = ["src", "confirm", "label", "placeholder"];

  readonly #view = new View(this.attachShadow({ mode: "open" }));
  readonly #loading = new Loading({ engine: () => this.engine(), demo: () => this.demo() }, () =>
    this.#loadingChanged(),
  );
  #strings = ENGLISH;
  #loadOptions: LoadOptions = {};
  #chatOptions: ChatOptions = {};
  /** Settles when the answer under way has ended. */
  #answering: Promise<unknown> = Promise.resolve();
  #messages: readonly ChatMessage[] = [];
  /** Stops the answer under way, also before it has begun. */
  #stopping: AbortController | null = null;
  #failed: { error: unknown; question: string } | null = null;
  /** What an event has told: a model, or an error. */
  #told: unknown = null;
  /** Counts conversations: an answer of an earlier one changes nothing any more. */
  #conversation = 0;
  #connected = false;
  #begun = false;

  constructor() {
    super();
    const { form, input, stop, root } = this.#view;
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      void this.send(input.value);
    });
    input.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || composes(event)) return;
      event.preventDefault();
      form.requestSubmit();
    });
    stop.addEventListener("click", () => this.stop());
    root.addEventListener("keydown", (event) => {
      if ((event as KeyboardEvent).key === "Escape" && !composes(event as KeyboardEvent)) this.stop();
    });
  }

  /** Modules that come with the first model. */
  protected abstract engine(): Promise<Engine>;
  protected abstract demo(): Promise<ModelSource>;

  connectedCallback(): void {
    // Properties that a page has set before the element was defined hide those of the class.
    for (const name of PROPERTIES) {
      if (!Object.hasOwn(this, name)) continue;
      const value = this[name];
      delete this[name];
      Object.assign(this, { [name]: value });
    }
    this.#connected = true;
    this.#named();
    if (!this.#begun) this.#want();
  }

  disconnectedCallback(): void {
    this.#connected = false;
    // An element that is moved is put back before this runs.
    queueMicrotask(async () => {
      if (this.#connected) return;
      this.stop();
      // Its text so far stays.
      await this.#answering;
      if (this.#connected) return;
      this.#begun = false;
      this.#loading.end();
    });
  }

  attributeChangedCallback(name: string, before: string | null, value: string | null): void {
    if (!this.#connected || before === value) return;
    if (name === "src" || (name === "confirm" && this.#loading.state.status !== "ready")) this.#want();
    else this.#named();
  }

  /** A URL, a name on the hub (`hf:owner/repo`), or `demo` for the model that comes with the package. */
  get src(): string {
    return this.getAttribute("src") ?? "";
  }

  set src(value: string) {
    this.setAttribute("src", value);
  }

  /** The system message, which counts from the next question on. */
  get system(): string {
    return this.getAttribute("system") ?? "";
  }

  set system(value: string) {
    this.setAttribute("system", value);
  }

  /** Whether nothing is asked of any server before the visitor has agreed. */
  get confirm(): boolean {
    return this.hasAttribute("confirm");
  }

  set confirm(value: boolean) {
    this.toggleAttribute("confirm", value);
  }

  /** Names the conversation for screen readers. */
  get label(): string {
    return this.getAttribute("label") ?? this.#strings.label;
  }

  set label(value: string) {
    this.setAttribute("label", value);
  }

  get placeholder(): string {
    return this.getAttribute("placeholder") ?? this.#strings.placeholder;
  }

  set placeholder(value: string) {
    this.setAttribute("placeholder", value);
  }

  /** The element's own words; those that are not given are English. */
  get strings(): ChatStrings {
    return this.#strings;
  }

  set strings(given: Partial<ChatStrings>) {
    this.#strings = { ...ENGLISH, ...given, problems: { ...ENGLISH.problems, ...given.problems } };
    if (this.#connected) this.#named();
  }

  /** Options of the load, as of `load`. */
  get loadOptions(): LoadOptions {
    return this.#loadOptions;
  }

  set loadOptions(options: LoadOptions) {
    this.#loadOptions = options;
    if (this.#begun) this.#want();
  }

  /** Options of each answer, as of `model.chat`. */
  get chatOptions(): ChatOptions {
    return this.#chatOptions;
  }

  set chatOptions(options: ChatOptions) {
    this.#chatOptions = options;
  }

  get state(): ChatState {
    return this.#stopping ? "answering" : this.#loading.state.status;
  }

  /** Where `state` is `ready` or `answering`. */
  get model(): Model | null {
    return this.#loading.state.model;
  }

  /** The conversation without the system message. A page may set it, to go on with one that it has kept. */
  get messages(): readonly ChatMessage[] {
    return this.#messages;
  }

  set messages(messages: readonly ChatMessage[]) {
    this.#conversation++;
    this.stop();
    this.#messages = [...messages];
    this.#failed = null;
    this.#view.log.replaceChildren();
    for (const { role, content } of messages) {
      const known = (["user", "assistant"] as const).find((one) => one === role);
      if (known && typeof content === "string") this.#show(known).update(content);
    }
    this.#update();
  }

  override focus(options?: FocusOptions): void {
    this.#view.input.focus(options);
  }

  /** Loads the model, as the button of the visitor does. */
  load(): void {
    this.#loading.load();
  }

  /** Ends the answer normally, with the text so far. */
  stop(): void {
    this.#stopping?.abort();
  }

  /**
   * Asks the model.
   *
   * @returns what the answer ends with; null where there was nothing to ask, no model yet, or an error
   */
  async send(text: string): Promise<Finished | null> {
    if (text.trim() === "" || this.#stopping) return null;
    const { model } = this.#loading.state;
    if (!model) {
      this.#view.say(this.#strings.notReady);
      return null;
    }
    if (this.#failed) this.#view.log.lastElementChild?.remove();
    this.#failed = null;
    // What else is written there meanwhile stays.
    if (this.#view.input.value === text) this.#view.input.value = "";
    this.#show("user").update(text);
    const answer = this.#answer(model, text, this.#conversation);
    this.#answering = answer;
    return answer;
  }

  async #answer(model: Model, question: string, conversation: number): Promise<Finished | null> {
    const options: ChatOptions = { onContextFull: "shift", ...this.#chatOptions };
    const asked = { role: "user", content: question };
    const messages = [...this.#messages, asked];
    const system = this.system === "" ? [] : [{ role: "system", content: this.system }];
    const shown = this.#show("assistant");
    const sentences = new Sentences();
    const current = () => conversation === this.#conversation;
    let text = "";
    const speak = (last?: boolean) => {
      for (const one of sentences.next(text, last)) this.#view.speak(one);
    };
    this.#view.hush();
    this.#stopping = new AbortController();
    const { signal } = this.#stopping;
    this.#update(this.#strings.answering);
    try {
      await checkFits(model, [...system, asked], options);
      const generation = model.chat([...system, ...messages], options);
      if (signal.aborted) generation.stop();
      signal.addEventListener("abort", () => generation.stop());
      for await (const piece of generation) {
        text += piece.text;
        if (!current()) continue;
        this.#view.write(() => shown.update(text));
        speak();
      }
      const finished = await generation.finished;
      this.#stopping = null;
      if (current()) {
        speak(true);
        this.#ended(messages, finished, shown.remove);
      } else this.#update();
      return finished;
    } catch (error) {
      this.#stopping = null;
      if (current()) {
        shown.remove();
        // It is shortened where it was written.
        if ((error as { code?: unknown } | null)?.code === "ContextFull") this.#view.input.value ||= question;
        this.#failed = { error, question };
      }
      this.#update();
      return null;
    }
  }

  #ended(messages: readonly ChatMessage[], finished: Finished, remove: () => void): void {
    const { text, finishReason } = finished;
    const { stopped, nothing, ready } = this.#strings;
    if (text.trim() === "") {
      // No turn of the conversation: templates want roles to alternate. The question goes back to where it was written.
      remove();
      this.#view.log.lastElementChild?.remove();
      this.#view.input.value ||= String(messages.at(-1)!.content);
      this.#update(finishReason === "stopped" ? stopped : nothing);
    } else {
      this.#messages = [...messages, { role: "assistant", content: text }];
      this.#update(finishReason === "stopped" ? stopped : ready);
    }
    this.#emit("answer", { text, finished });
  }

  #show(role: "user" | "assistant"): { update(text: string): void; remove(): void } {
    const element = this.#view.turn(role, role === "user" ? this.#strings.you : this.#strings.model);
    const markdown = role === "assistant" ? new MarkdownStream(element) : null;
    return {
      update: (text) => (markdown ? markdown.update(text) : element.replaceChildren(text)),
      remove: () => element.parentElement?.remove(),
    };
  }

  #want(): void {
    this.#begun = true;
    this.stop();
    if (this.src === "") this.#loading.end();
    else this.#loading.want({ src: this.src, confirm: this.confirm, loadOptions: this.#loadOptions });
  }

  #loadingChanged(): void {
    const { status } = this.#loading.state;
    const { checking, loading, ready } = this.#strings;
    const words = status === "checking" ? checking : status === "loading" ? loading : status === "ready" ? ready : "";
    this.#update(words);
  }

  #named(): void {
    this.#view.name(this.#strings, this.label, this.placeholder);
    this.#update();
  }

  /** Shows what has changed, and tells the page of it. */
  #update(words?: string): void {
    const { status, model, error } = this.#loading.state;
    this.#view.set(status === "ready" && !this.#stopping, this.#stopping !== null);
    this.#view.notice(this.#notice());
    if (words !== undefined) this.#view.say(words);
    const wrong = status === "error" ? error : this.#failed?.error;
    const news = wrong ?? model;
    if (news === this.#told) return;
    this.#told = news;
    if (wrong !== undefined) this.#emit("error", { error: wrong });
    else if (model) this.#emit("ready", { model });
  }

  #notice(): Notice | null {
    const { status, size, progress, error } = this.#loading.state;
    const strings = this.#strings;
    const inWords = (bytes: number) => sizeText(bytes, this.closest("[lang]")?.getAttribute("lang") ?? undefined);
    if (status === "confirm") {
      const text = size ? filled(strings.askSize, { size: inWords(size) }) : strings.ask;
      return { part: "confirm", text, action: { part: "load", text: strings.load, run: () => this.load() } };
    }
    if (status === "loading") {
      const { loaded = 0, total = 0 } = progress ?? {};
      const sizes = { done: inWords(loaded), total: inWords(total) };
      return {
        part: "loading",
        text: total ? filled(strings.loadingSize, sizes) : strings.loading,
        progress: total ? loaded / total : null,
        action: { part: "cancel", text: strings.cancel, run: () => this.#loading.cancel() },
      };
    }
    const failed = this.#failed;
    if (status !== "error" && !failed) return null;
    const wrong = status === "error" ? error : failed!.error;
    const retry = () => (status === "error" ? this.load() : void this.send(failed!.question));
    return {
      part: "error",
      text: problemOf(wrong, strings),
      detail: { heading: strings.details, text: detailOf(wrong) },
      action: { part: "retry", text: strings.retry, run: retry },
    };
  }

  #emit(name: string, detail: object): void {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }
}
