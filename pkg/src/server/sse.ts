/** Server-sent events as the body of a response. */

import type { ApiError } from "../openai/errors.ts";

export interface Sent {
  /** The object that the event holds, or a text as it is. */
  data: unknown;
  /** The event's name, where it has one. */
  event?: string;
  /** What a client names as the last event that it has seen. */
  id?: string;
}

/** A comment, which clients skip. It keeps proxies and runtimes from closing a silent connection. */
const PING = ": ping\n\n";
/** A reader that takes nothing for so long has gone. */
const STALL_MS = 60_000;
/** Characters that are written at once. */
const CHUNK = 16_384;

export interface SseOptions {
  pingSeconds: number;
  /** The reader has gone: what makes the events ends. */
  onGone(): void;
}

export const SSE_HEADERS = {
  "content-type": "text/event-stream; charset=utf-8",
  "cache-control": "no-cache, no-transform",
  // nginx would gather the events.
  "x-accel-buffering": "no",
};

/** Turns of the event loop: events that are ready together are written together. */
const turn = () =>
  new Promise<void>((resolve) => {
    if (typeof setImmediate === "function") setImmediate(resolve);
    else setTimeout(resolve, 0);
  });

/** The events as bytes. They are made as fast as they are read. */
export const sse = (events: AsyncGenerator<Sent>, options: SseOptions): ReadableStream<Uint8Array> =>
  new ReadableStream<Uint8Array>(new Pump(events, options), new CountQueuingStrategy({ highWaterMark: 16 }));

class Pump implements UnderlyingDefaultSource<Uint8Array> {
  readonly #events: AsyncGenerator<Sent>;
  readonly #options: SseOptions;
  readonly #encoder = new TextEncoder();
  #over = false;
  #wake = () => {};
  #pinging: ReturnType<typeof setInterval> | undefined;
  #stalled: ReturnType<typeof setTimeout> | undefined;
  /** Events that wait to be written. */
  #text = "";
  #scheduled = false;

  constructor(events: AsyncGenerator<Sent>, options: SseOptions) {
    this.#events = events;
    this.#options = options;
  }

  start(controller: Controller): void {
    this.#pinging = setInterval(() => {
      if (!this.#over && hasRoom(controller)) controller.enqueue(this.#encoder.encode(PING));
    }, 1000 * this.#options.pingSeconds);
    (this.#pinging as { unref?(): void }).unref?.();
    // What fails is told in the stream: an error here means that nobody reads it any more.
    this.#pump(controller).catch((error) => {
      if (this.#over) return;
      this.#end();
      controller.error(error);
    });
  }

  pull(): void {
    this.#wake();
  }

  cancel(): void {
    this.#end();
    this.#options.onGone();
    void this.#events.return(undefined);
  }

  #end(): void {
    this.#over = true;
    clearInterval(this.#pinging);
    clearTimeout(this.#stalled);
    this.#wake();
  }

  async #pump(controller: Controller): Promise<void> {
    let written = 0;
    const flush = () => this.#flush(controller);
    for await (const event of this.#events) {
      if (this.#over) return;
      this.#text += framed(event);
      // The first events go out at once; later ones are gathered for a turn.
      if (written++ < 2 || this.#text.length > CHUNK) flush();
      else if (!this.#scheduled) {
        this.#scheduled = true;
        void turn().then(flush);
      }
      if (!hasRoom(controller)) await this.#room(controller);
    }
    flush();
    if (this.#over) return;
    this.#end();
    controller.close();
  }

  #flush(controller: Controller): void {
    this.#scheduled = false;
    if (this.#over || this.#text === "") return;
    controller.enqueue(this.#encoder.encode(this.#text));
    this.#text = "";
  }

  /** Waits for the reader; one who takes nothing for a long time has gone. */
  async #room(controller: Controller): Promise<void> {
    await new Promise<void>((resolve) => {
      this.#wake = resolve;
      this.#stalled = setTimeout(() => {
        this.cancel();
        controller.error(new Error("the events are not read"));
      }, STALL_MS);
    });
    clearTimeout(this.#stalled);
  }
}

type Controller = ReadableStreamDefaultController<Uint8Array>;

const hasRoom = (controller: Controller) => (controller.desiredSize ?? 0) > 0;

function framed({ id, event, data }: Sent): string {
  const named = event === undefined ? "" : `event: ${event}\n`;
  const numbered = id === undefined ? "" : `id: ${id}\n`;
  return `${named}${numbered}data: ${typeof data === "string" ? data : JSON.stringify(data)}\n\n`;
}

/** An error in the middle of a stream. */
export const failedEvent = (error: ApiError): Sent => ({ event: "error", data: error.body() });
