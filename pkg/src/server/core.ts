/** What all routes share: the models, the limits, and the requests under way. */

import { ApiError, retryHeaders, toApiError } from "../openai/errors.ts";
import { EngineError } from "../types/errors.ts";
import { readJson } from "./body.ts";
import { Counts } from "./counts.ts";
import { type Models, stopping, type Work } from "./models.ts";
import type { RequestRecord, Settings } from "./settings.ts";
import type { Ready, Slot } from "./slot.ts";
import { type Sent, SSE_HEADERS, sse } from "./sse.ts";

/** What a route makes of a request: an object, or events. */
export type Outcome = { json: unknown } | { events: AsyncGenerator<Sent, undefined>; failed(error: ApiError): Sent };

/** An answer that has not begun by then is a stream already, so that its client hears of it. */
const FIRST_MS = 2000;

/** A request's record, and the end of an answer that goes on behind its response. */
export interface Entry {
  record: RequestRecord;
  done: Promise<void> | null;
}

export class Core {
  readonly models: Models;
  readonly settings: Settings;
  readonly counts = new Counts();
  readonly #active = new Set<AbortController>();
  #reading = 0;
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

  /** Bodies that are still coming take memory, too: they count as requests under way. */
  async body(request: Request): Promise<unknown> {
    if (this.#stopping) throw stopping();
    if (this.#active.size + this.#reading >= this.settings.maxRequests) throw await this.#full(this.models.first);
    this.#reading++;
    try {
      return await readJson(request, { maxBytes: this.settings.maxBody });
    } finally {
      this.#reading--;
    }
  }

  /** Works for a request with the model that it names. `param` is the field that holds its prompt. */
  async work(
    request: Request,
    entry: Entry,
    name: string,
    param: string | null,
    run: (work: Work) => Promise<Outcome>,
  ): Promise<Response> {
    if (this.#stopping) throw stopping();
    const { slot, adapters } = this.models.find(name);
    if (this.#active.size >= this.settings.maxRequests) throw await this.#full(slot);
    const abort = new AbortController();
    this.#active.add(abort);
    let release = () => {};
    const end = () => {
      release();
      release = () => {};
      this.#active.delete(abort);
      if (this.#active.size === 0) this.#onIdle();
    };
    try {
      const ready = await slot.use();
      release = ready.release;
      entry.record.model = name;
      const signal = AbortSignal.any([request.signal, abort.signal]);
      const problem = (error: unknown) => this.#problem(error, param, { ready, slot, entry, request });
      const work: Work = { ...ready, name, slot, adapters, signal };
      const outcome = await run(work).catch(async (error) => {
        throw await problem(error);
      });
      if ("json" in outcome) {
        end();
        return Response.json(outcome.json);
      }
      let ended = () => {};
      entry.done = new Promise((resolve) => {
        ended = resolve;
      });
      return await this.#stream(outcome, { end: () => [end(), ended()], abort, problem });
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

  async #stream(
    { events, failed }: Extract<Outcome, { events: unknown }>,
    { end, abort, problem }: { end(): unknown; abort: AbortController; problem(error: unknown): Promise<ApiError> },
  ): Promise<Response> {
    // What fails at once is an answer with a status.
    const first = events.next();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const late = new Promise<null>((resolve) => {
      timer = setTimeout(() => resolve(null), FIRST_MS);
    });
    await Promise.race([first, late]).catch(async (error) => {
      throw await problem(error);
    });
    clearTimeout(timer);
    const all = async function* (): AsyncGenerator<Sent, undefined> {
      try {
        for (let next = await first; !next.done; next = await events.next()) yield next.value;
      } catch (error) {
        yield failed(await problem(error));
      } finally {
        await events.return(undefined);
        end();
      }
    };
    const stream = all();
    const onGone = () => {
      abort.abort();
      end();
    };
    const body = sse(stream, { pingSeconds: this.settings.pingSeconds, onGone });
    return new Response(body, { headers: SSE_HEADERS });
  }

  async #problem(
    error: unknown,
    param: string | null,
    {
      ready,
      slot,
      entry,
      request,
    }: Pick<Work, "slot"> & { ready: Pick<Work, "model">; entry: Entry; request: Request },
  ): Promise<ApiError> {
    if (request.signal.aborted) return new ApiError(499, "the client has gone", { code: "client_closed_request" });
    const found = toApiError(error, param);
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

/** What the log says of an error. */
function reasonOf(error: unknown): string {
  if (error instanceof EngineError) return `${error.code}: ${error.message}`;
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}
