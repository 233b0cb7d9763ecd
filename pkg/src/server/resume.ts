/**
 * Streams that go on where they broke. Nothing is kept of a stream: an answer that is seeded or greedy is computed again, bit for bit,
 * and the events that the client has seen are left out. The id of an event says which request it belongs to and how many events of each
 * answer were sent by then.
 */

import { invalid } from "../openai/errors.ts";

/** Further answers would make ids long. */
const MOST_ANSWERS = 16;

export interface Identity {
  /** What response ids are made of. */
  token: string;
  created: number;
}

const hex = (bytes: Uint8Array) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

const newIdentity = (): Identity => ({
  token: hex(crypto.getRandomValues(new Uint8Array(12))),
  created: Math.floor(Date.now() / 1000),
});

const identities = new WeakMap<Request, Identity>();

/** Gives a request the identity that its answer has: the same one makes the same bytes. */
export const identify = (request: Request, identity: Identity): void => void identities.set(request, identity);

/** The identity that a request was given, or a new one. */
export const identityOf = (request: Request): Identity => identities.get(request) ?? newIdentity();

/** Numbers the events of a stream, and tells which of them the client has. */
export class EventIds {
  readonly identity: Identity;
  readonly #hash: string | null;
  readonly #sent: number[];
  readonly #seen: readonly number[];

  private constructor(identity: Identity, hash: string | null, answers: number, seen: readonly number[]) {
    this.identity = identity;
    this.#hash = hash;
    // The events behind all answers count as one more.
    this.#sent = Array(answers + 1).fill(0);
    this.#seen = seen;
  }

  /** Goes on where the header Last-Event-ID says. @param repeats whether the request gets the same answers again */
  static async of(
    request: Request,
    { body, fingerprint, answers, repeats }: { body: unknown; fingerprint: string; answers: number; repeats: boolean },
  ): Promise<EventIds> {
    const last = request.headers.get("last-event-id");
    if (!repeats || answers > MOST_ANSWERS) {
      if (last !== null) throw wrong("only a seeded or greedy request can go on");
      return new EventIds(identityOf(request), null, answers, []);
    }
    const bytes = new TextEncoder().encode(`${fingerprint} ${JSON.stringify(body)}`);
    const hash = hex(new Uint8Array(await crypto.subtle.digest("SHA-256", bytes)).subarray(0, 8));
    if (last === null) return new EventIds(identityOf(request), hash, answers, []);
    const [, token, created, own, counts] =
      /^([0-9a-f]{24})_(\d{1,11})_([0-9a-f]{16})_([\d.]{1,200})$/.exec(last) ?? [];
    if (token === undefined) throw wrong("it is of no stream of this server");
    if (own !== hash) throw wrong("it belongs to another request or another model");
    const seen = counts!.split(".").map(Number);
    return new EventIds({ token, created: Number(created) }, hash, answers, seen);
  }

  /** The number of the next event of an answer, or behind all of them; null where the client has that event. */
  next(answer = this.#sent.length - 1): { id?: string } | null {
    const count = ++this.#sent[answer]!;
    if (count <= (this.#seen[answer] ?? 0)) return null;
    if (this.#hash === null) return {};
    const { token, created } = this.identity;
    return { id: `${token}_${created}_${this.#hash}_${this.#counts().join(".")}` };
  }

  #counts(): number[] {
    return this.#sent.map((count, answer) => Math.max(count, this.#seen[answer] ?? 0));
  }
}

const wrong = (reason: string) => invalid("Last-Event-ID", `Last-Event-ID: ${reason}`, "invalid_last_event_id");
