/** What all routes share: the models, the limits, and the requests under way. */

import { ApiError, retryHeaders, toApiError } from "../openai/errors.ts";
import { EngineError } from "../types/errors.ts";
import { parseJson, readJson } from "./body.ts";
import { Counts } from "./counts.ts";
import { MAX_HELD } from "./gathered.ts";
import { insideOf } from "./inside.ts";
import { evicted } from "./lines.ts";
import { type Models, stopping, type Work } from "./models.ts";
import type { RequestRecord, Settings } from "./settings.ts";
import { Share } from "./share.ts";
import type { Ready, Slot } from "./slot.ts";
import { type Sent, SSE_HEADERS, sse } from "./sse.ts";

/** What a route makes of a request: an object, or events. */
export type Outcome = { json: unknown } | { events: AsyncGenerator<Sent, undefined>; failed(error: ApiError): Sent };

/** An answer that has not begun by then is a stream already, so that its client hears of it. */
const FIRST_MS = 2000;

/** Milliseconds after a client's request before lines of batches go on: one that was read begins then, and many come one by one. */
const QUIET_MS = 50;

/** A request's record, and the end of an answer that goes on behind its response. */
export interface Entry {
  record: RequestRecord;
  done: Promise<void> | null;
}

export class Core {
  readonly models: Models;
  readonly settings: Settings;
  readonly counts = new Counts();
  readonly #logprobs = new Share(MAX_HELD);
  readonly #active = new Set<AbortController>();
  /** Requests that are lines of batches. */
  readonly #lines = new WeakSet<Request>();
  /** What is under way of each model: lines, the last one to begin behind the others, and requests of clients. */
  readonly #under = new WeakMap<Slot, { lines: Set<AbortController>; clients: number }>();
  /** Those of clients among the requests under way. */
  #clients = 0;
  #reading = 0;
  /** When the last client had gone. */
  #leftAt = Number.NEGATIVE_INFINITY;
  /** Those who wait for that. */
  readonly #quiet = new Set<() => void>();
  #stopping = false;
  #onIdle = () => {};

  constructor(models: Models, settings: Settings) {
    this.models = models;
    this.settings = settings;
  }

  get stopping(): boolean {
    return this.#stopping;
  }

  /** Requests that are under way. */
  get active(): number {
    return this.#active.size;
  }

  /** Makes a request a line of a batch, which takes no client's place. */
  markLine(request: Request): void {
    this.#lines.add(request);
  }

  isLine(request: Request): boolean {
    return this.#lines.has(request);
  }

  /** Resolves when no client's request runs, waits or is being read, and none did a moment ago. */
  async quiet(signal: AbortSignal): Promise<void> {
    for (;;) {
      signal.throwIfAborted();
      const rest = this.#leftAt + QUIET_MS - performance.now();
      if (this.#clients + this.#reading > 0) await this.#leaving(signal);
      else if (rest > 0) await new Promise((resolve) => setTimeout(resolve, rest));
      else return;
    }
  }

  /** Bodies that are still coming take memory, too: they count as requests under way. */
  async body(request: Request): Promise<unknown> {
    if (this.#stopping) throw stopping();
    const { maxBody: maxBytes, maxRequests } = this.settings;
    const inside = insideOf(request);
    if (inside) return parseJson(inside.text);
    if (this.#clients + this.#reading >= maxRequests) throw await this.#full(this.models.first);
    this.#reading++;
    try {
      return await readJson(request, { maxBytes });
    } finally {
      this.#reading--;
      this.#left();
    }
  }

  /** The body of a request that names a model. Where one alone is served, that one is meant by a body without a name. */
  async asked(request: Request): Promise<unknown> {
    const body = await this.body(request);
    const { only } = this.models;
    if (only === null || typeof body !== "object" || body === null || Array.isArray(body)) return body;
    const { model } = body as { model?: unknown };
    return model === undefined || model === null ? { ...body, model: only } : body;
  }

  /** Works for a request with the model that it names. `param` is the field that holds its prompt, `format` that of the answer's format. */
  async work(
    request: Request,
    entry: Entry,
    name: string,
    param: string | null,
    run: (work: Work) => Promise<Outcome>,
    format?: string,
  ): Promise<Response> {
    if (this.#stopping) throw stopping();
    const { slot, adapters } = this.models.find(name);
    const client = !this.isLine(request);
    if (client && this.#clients >= this.settings.maxRequests) throw await this.#full(slot);
    const abort = new AbortController();
    this.#active.add(abort);
    if (client) this.#clients++;
    const under = this.#underWay(slot);
    if (client) under.clients++;
    else under.lines.add(abort);
    let releases: (() => void)[] = [];
    const end = () => {
      for (const release of releases) release();
      releases = [];
      under.lines.delete(abort);
      if (this.#active.delete(abort) && client) {
        under.clients--;
        this.#clients--;
        this.#left();
      }
      if (this.#active.size === 0) this.#onIdle();
    };
    try {
      const ready = await slot.use();
      releases.push(ready.release);
      if (client) makeRoom(under, ready.model.info.maxSequences);
      entry.record.model = name;
      const inside = insideOf(request);
      const gone = inside?.signal ?? request.signal;
      const signal = AbortSignal.any([gone, abort.signal]);
      const problem = (error: unknown) => this.#problem(error, { param, format }, { ready, slot, entry, gone });
      const hold = async (logprobs: number) => void releases.push(await this.#logprobs.take(logprobs, signal));
      const work: Work = { ...ready, name, slot, adapters, signal, hold };
      const outcome = await run(work).catch(async (error) => {
        throw await problem(error);
      });
      if ("json" in outcome) {
        end();
        if (!inside) return Response.json(outcome.json);
        inside.reply = outcome.json;
        return new Response();
      }
      let ended = () => {};
      entry.done = new Promise((resolve) => {
        ended = resolve;
      });
      return await this.#stream(outcome, { end, ended, abort, problem });
    } catch (error) {
      end();
      throw error;
    }
  }

  /** A model that is there now, the first where none is named. */
  async current(name = this.models.first.name): Promise<Ready & { name: string; slot: Slot }> {
    const { slot } = this.models.find(name);
    const ready = await slot.current();
    if (!ready) throw slot.unavailable();
    return { ...ready, name, slot };
  }

  /** Takes no more work and ends what runs, at the latest when the time is up. */
  async drain(ms: number): Promise<void> {
    this.#stopping = true;
    if (this.#active.size > 0) {
      let timer: ReturnType<typeof setTimeout> | undefined;
      await new Promise<void>((resolve) => {
        this.#onIdle = resolve;
        timer = setTimeout(resolve, ms);
      });
      clearTimeout(timer);
    }
    for (const abort of this.#active) abort.abort(stopping());
    // The errors of what was cut off are sent before the models are closed.
    if (this.#active.size > 0) await new Promise((resolve) => setTimeout(resolve, 100));
  }

  #underWay(slot: Slot): { lines: Set<AbortController>; clients: number } {
    const found = this.#under.get(slot) ?? { lines: new Set(), clients: 0 };
    this.#under.set(slot, found);
    return found;
  }

  #leaving(signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const end = () => {
        this.#quiet.delete(end);
        signal.removeEventListener("abort", end);
        resolve();
      };
      this.#quiet.add(end);
      signal.addEventListener("abort", end);
    });
  }

  /** A client's request was read, or has ended. */
  #left(): void {
    if (this.#clients + this.#reading > 0) return;
    this.#leftAt = performance.now();
    for (const end of this.#quiet) end();
  }

  async #stream(
    { events, failed }: Extract<Outcome, { events: unknown }>,
    {
      end,
      ended,
      abort,
      problem,
    }: { end(): void; ended(): void; abort: AbortController; problem(error: unknown): Promise<ApiError> },
  ): Promise<Response> {
    let refused: ApiError | null = null;
    const first = events.next().catch(async (error) => {
      refused = await problem(error);
      throw refused;
    });
    const all = async function* (): AsyncGenerator<Sent, undefined> {
      try {
        for (let next = await first; !next.done; next = await events.next()) yield next.value;
      } catch (error) {
        yield failed(refused ?? (await problem(error)));
      } finally {
        await events.return(undefined);
        end();
        // Behind what was counted last of answers that were cut off.
        ended();
      }
    };
    const onGone = () => {
      abort.abort();
      end();
    };
    // Made while the first event is being computed, which would wait for it otherwise.
    const body = sse(all(), { pingSeconds: this.settings.pingSeconds, onGone });
    const response = new Response(body, { headers: SSE_HEADERS });
    let timer: ReturnType<typeof setTimeout> | undefined;
    const late = new Promise<null>((resolve) => {
      timer = setTimeout(() => resolve(null), FIRST_MS);
    });
    try {
      // What fails at once is an answer with a status.
      await Promise.race([first, late]);
    } finally {
      clearTimeout(timer);
    }
    return response;
  }

  async #problem(
    error: unknown,
    { param, format }: { param: string | null; format: string | undefined },
    { ready, slot, entry, gone }: Pick<Work, "slot"> & { ready: Pick<Work, "model">; entry: Entry; gone: AbortSignal },
  ): Promise<ApiError> {
    if (gone.aborted) return new ApiError(499, "the client has gone", { code: "client_closed_request" });
    const found = toApiError(error, param, format);
    if (found.status >= 500) entry.record.error = reasonOf(error);
    return found.code === "queue_full" ? this.#full(slot, ready) : found;
  }

  /** Why there is no place for a request now, and when there may be one. */
  async #full(slot: Slot, found?: Pick<Work, "model">): Promise<ApiError> {
    const ready = found ?? (await slot.current());
    const status = (await ready?.model.status().catch(() => null)) ?? { running: 1, waiting: 0 };
    const headers = retryHeaders(slot.pace.retryMs(status));
    return new ApiError(429, "there is no place for another request: try again later", { code: "queue_full", headers });
  }
}

/** Lines give their places to clients who would wait for them: those that began last, of which the least is lost. */
function makeRoom({ lines, clients }: { lines: Set<AbortController>; clients: number }, places: number): void {
  const over = Math.max(0, lines.size + clients - places);
  for (const abort of [...lines].slice(lines.size - Math.min(over, lines.size))) {
    lines.delete(abort);
    abort.abort(evicted());
  }
}

/** What the log says of an error. */
function reasonOf(error: unknown): string {
  if (error instanceof EngineError) return `${error.code}: ${error.message}`;
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}
