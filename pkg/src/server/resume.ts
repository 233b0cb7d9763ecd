/**
 * Streams that go on where they broke. Nothing is kept of a stream: an answer that is seeded or greedy is computed again, bit for bit,
 * and the events that the client has seen are left out. The id of an event says which request it belongs to and how many events of each
 * answer were sent by then.
 */

import { invalid } from "../openai/errors.ts";

/** Streams of more answers have no ids, which would be long. */
const MAX_ANSWERS = 16;

export interface Identity {
  /** What response ids are made of. */
  token: string;
  created: number;
}

const newIdentity = (): Identity => ({
  // Runtimes keep random bytes for these in store.
  token: crypto.randomUUID().replaceAll("-", "").slice(0, 24),
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
  static of(
    request: Request,
    { body, fingerprint, answers, repeats }: { body: unknown; fingerprint: string; answers: number; repeats: boolean },
  ): EventIds {
    const last = request.headers.get("last-event-id");
    if (!repeats || answers > MAX_ANSWERS) {
      if (last !== null && !repeats) throw wrong("only a seeded or greedy request can go on");
      if (last !== null) throw wrong(`a stream of ${answers} answers cannot go on, one of ${MAX_ANSWERS} can`);
      return new EventIds(identityOf(request), null, answers, []);
    }
    const hash = hashOf(`${fingerprint} ${JSON.stringify(body)}`);
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

/**
 * 64 bits of a text, by two rounds of FNV-1a over its UTF-16 units. It tells another request that was sent by mistake, and guards nothing;
 * the digests of `crypto` come from another thread, which takes longer than all else that begins a stream.
 */
function hashOf(text: string): string {
  let [low, high] = [0x811c9dc5, 0x050c5d1f];
  for (let at = 0; at < text.length; at++) {
    const unit = text.charCodeAt(at);
    low = Math.imul(low ^ unit, 0x01000193);
    high = Math.imul(high ^ unit ^ (low >>> 16), 0x01000193);
  }
  return [low, high].map((half) => (half >>> 0).toString(16).padStart(8, "0")).join("");
}

const wrong = (reason: string) => invalid("Last-Event-ID", `Last-Event-ID: ${reason}`, "invalid_last_event_id");
