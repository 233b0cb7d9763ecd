/** One generation inside the worker: makes pieces of text from tokens, ends at stop texts and takes the times. */

import { repetitionScore } from "../metrics/repetition.ts";
import { StopMatcher } from "../text/stops.ts";
import { TextStream } from "../text/stream.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import type { Finished, FinishReason, Piece, TokenLogprobs } from "../types/index.ts";

export interface AnswerOptions {
  /** null where the model has none: pieces then have ids only. */
  tokenizer: Tokenizer | null;
  promptTokens: number[];
  stop: readonly string[];
  /** Special tokens stay in the text. */
  special: boolean;
  send(pieces: Piece[]): void;
}

export class Answer {
  readonly #options: AnswerOptions;
  readonly #stream: TextStream | null;
  readonly #stops: StopMatcher;
  readonly #tokens: number[] = [];
  #text = "";
  #cached = 0;
  /** Prompt tokens that had to be computed, and tokens of the session before them. */
  #computed = 0;
  #again = 0;
  /** How many ids the engine has given. */
  #taken = 0;
  /** How many pieces were sent. */
  #sent = 0;
  /** Ids whose text is still held back. */
  #waiting: number[] = [];
  #pieces: Piece[] = [];
  /** One entry for each of `#tokens`, where asked for; `#shown` of them have gone out with pieces. */
  #logprobs: TokenLogprobs[] = [];
  #shown = 0;
  #noted: Omit<TokenLogprobs, "token"> | null = null;
  readonly #started = performance.now();
  #first = 0;
  #last = 0;

  constructor(options: AnswerOptions) {
    this.#options = options;
    this.#stream =
      options.tokenizer &&
      new TextStream(options.tokenizer, { special: options.special, continues: options.promptTokens.length > 0 });
    this.#stops = new StopMatcher(options.stop);
  }

  /** The prompt is read. @param tokens of the conversation by now @param cached those that were there before */
  begun(tokens: number, cached: number): void {
    // What is computed once more to make room counts as no prompt.
    if (this.#taken > 0) return;
    this.#cached = cached;
    this.#computed = Math.min(tokens - cached, this.#options.promptTokens.length);
    this.#again = tokens - cached - this.#computed;
  }

  /** The ids of the answer so far. */
  get tokens(): readonly number[] {
    return this.#tokens;
  }

  get sent(): number {
    return this.#sent;
  }

  /** Ids that were taken but are not part of the answer: those of a stop text. */
  get surplus(): number {
    return this.#taken - this.#tokens.length;
  }

  /** Keeps the log-probabilities of the token that comes next. */
  note({ chosen, ids, top }: { chosen: number; ids: Uint32Array; top: Float32Array }): void {
    this.#noted = { logprob: chosen, top: likeliest(ids, top) };
  }

  /** Takes a token. @returns whether it completed a stop text */
  token(id: number): boolean {
    this.#taken++;
    this.#last = performance.now();
    if (this.#tokens.length === 0) this.#first = this.#last;
    const text = this.#stops.push(this.#stream?.push(id) ?? "");
    if (this.#stops.match) {
      if (text !== "") this.#show(text, this.#waiting);
      return true;
    }
    this.#tokens.push(id);
    if (this.#noted) this.#logprobs.push({ token: id, ...this.#noted });
    this.#show(text, [...this.#waiting, id]);
    return false;
  }

  /** Sends the pieces that have gathered. */
  flush(): void {
    if (this.#pieces.length === 0) return;
    this.#sent += this.#pieces.length;
    this.#options.send(this.#pieces.splice(0));
  }

  /** @param dropped messages that were left out to make room */
  finish(reason: FinishReason, dropped = 0): Finished {
    if (!this.#stops.match) {
      const rest = this.#stops.push(this.#stream?.flush() ?? "") + this.#stops.flush();
      if (rest !== "" || this.#waiting.length > 0) this.#show(rest, this.#waiting, true);
    }
    this.flush();
    const { promptTokens } = this.#options;
    const [computed, again] = [this.#computed, this.#again];
    const predicted = this.#tokens.length;
    const promptMs = (this.#first || performance.now()) - this.#started;
    const predictedMs = this.#last - this.#first;
    return {
      text: this.#text,
      tokens: this.#tokens,
      promptTokens,
      finishReason: this.#stops.match ? "stop" : reason,
      ...(this.#stops.match ? { stopText: this.#stops.match.stop } : {}),
      ...(dropped > 0 ? { droppedMessages: dropped } : {}),
      ...(this.#noted ? { logprobs: this.#logprobs } : {}),
      repetitionScore: repetitionScore(this.#tokens),
      timings: {
        promptN: computed,
        cachedN: this.#cached,
        ...(again > 0 ? { recomputedN: again } : {}),
        promptMs,
        promptPerSecond: perSecond(computed + again, promptMs),
        predictedN: predicted,
        predictedMs,
        // The first token comes with the prompt's last step.
        predictedPerSecond: perSecond(predicted - 1, predictedMs),
        ttftMs: promptMs,
      },
    };
  }

  #show(text: string, tokens: number[], last = false): void {
    const silent = this.#stream === null || last;
    if (text === "" && !silent) {
      this.#waiting = tokens;
      return;
    }
    this.#waiting = [];
    this.#text += text;
    const logprobs = this.#logprobs.slice(this.#shown, this.#shown + tokens.length);
    this.#shown += tokens.length;
    this.#pieces.push({ text, tokens, ...(this.#noted ? { logprobs } : {}) });
  }
}

/** The likeliest tokens of an event. */
export const likeliest = (ids: Uint32Array, top: Float32Array): TokenLogprobs["top"] =>
  Array.from(ids, (token, i) => ({ token, logprob: top[i]! }));

const perSecond = (count: number, ms: number) => (count > 0 && ms > 0 ? (count * 1000) / ms : 0);
