/**
 * Answers lines of batches by the server's app. What a line gets follows from the line, its index and the model alone: nothing of it
 * tells when, where or beside what it was computed.
 */

import { type BatchRequest, readBatchLine, replyLine, settled, unansweredLine } from "../openai/batch.ts";
import { ApiError, type ErrorBody } from "../openai/errors.ts";
import { EngineError } from "../types/errors.ts";
import { Gate } from "./gate.ts";
import { type Inside, requestInside } from "./inside.ts";
import { identify } from "./resume.ts";

/** A line of a batch and its place, from 0. */
export interface Line {
  index: number;
  text: string;
  /** Why the text is none that could be read. */
  fault?: { code: string; message: string };
}

export interface Answered {
  /** The line of the answer, without a line feed. */
  text: string;
  /** It belongs into the file of errors. */
  failed: boolean;
}

export interface LineSettings {
  /** The app, with its models. */
  fetch(request: Request): Promise<Response>;
  /** The model that answers, whatever a line says; null leaves it to the line. */
  model: string | null;
  /** Resolves when a line may begin again that gave its place to a client. @default at once */
  rest?(signal: AbortSignal): Promise<void>;
  /** 24 hexadecimal digits that ids are made of: a hash of the model, the line and its place. */
  tokenOf(line: Line): string;
}

const EVICTED = "evicted";
/** Why a line ends that is to begin again. */
export const evicted = (): ApiError =>
  new ApiError(429, "the line has given its place to a client's request", { code: EVICTED });

interface Reply {
  status: number;
  body: unknown;
}

/** How often a line is tried among others when the engine fails, and then alone: one that ends the engine takes others with it. */
const TRIES = { shared: 2, alone: 3 };
/** Milliseconds before a line is tried again that found no place. */
const AGAIN_MS = 50;
/** The server's own states; everything else with such a status is the engine's failure. */
const STOPPED = ["stopping", "closed", "load_failed", "model_lost"];

export class LineAnswers {
  readonly #settings: LineSettings;
  readonly #gate = new Gate();

  constructor(settings: LineSettings) {
    this.#settings = settings;
  }

  async answer(line: Line, signal?: AbortSignal): Promise<Answered> {
    const token = this.#settings.tokenOf(line);
    const { customId, request } = readBatchLine(line.text, line.index);
    const found = line.fault ? new ApiError(400, line.fault.message, { code: line.fault.code }) : request;
    const reply =
      found instanceof ApiError
        ? { status: found.status, body: found.body() }
        : await this.#work(found, token, signal ?? new AbortController().signal);
    return { text: replyLine({ token, customId, ...reply }), failed: reply.status !== 200 };
  }

  /** What stands for the answer to a line that ended its workers, or has none for another reason. */
  async lost(line: Line, message: string, code = "worker_lost"): Promise<Answered> {
    const token = this.#settings.tokenOf(line);
    const { customId } = readBatchLine(line.text, line.index);
    return { text: unansweredLine(token, customId, code, message), failed: true };
  }

  async #work(request: BatchRequest, token: string, signal: AbortSignal): Promise<Reply> {
    const once = () => this.#once(request, token, signal);
    let reply: Reply | null = null;
    for (let at = 0; at < TRIES.shared && !isLast(reply); at++) reply = await this.#gate.shared(signal, once);
    for (let at = 0; at < TRIES.alone && !isLast(reply); at++) reply = await this.#gate.alone(signal, once);
    return reply!;
  }

  async #once({ url, body }: BatchRequest, token: string, signal: AbortSignal): Promise<Reply> {
    const { model, fetch } = this.#settings;
    const text = JSON.stringify(model === null ? body : { ...body, model });
    for (;;) {
      signal.throwIfAborted();
      const inside: Inside = { text, signal };
      const request = requestInside(`http://localhost${url}`, inside);
      // Clocks are not part of a result.
      identify(request, { token, created: 0 });
      const response = await fetch(request);
      signal.throwIfAborted();
      const { status } = response;
      if (status === 200) return { status, body: settled(inside.reply) };
      const found = (await response.json()) as ErrorBody;
      const { code, message } = found.error;
      if (STOPPED.includes(code ?? "")) throw new EngineError("WorkerFailed", message);
      // Places come free, and models are loaded again.
      if (status !== 429 && code !== "model_loading") return { status, body: found };
      await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
      if (code === EVICTED) await this.#settings.rest?.(signal);
    }
  }
}

/** Whether a reply is the line's own, and no failure of the engine or lack of memory. */
const isLast = (reply: Reply | null): boolean => reply !== null && reply.status < 500;
