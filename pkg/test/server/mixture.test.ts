/**
 * Streams, plain requests, embeddings, wrong requests and clients that break off at once, on few places, so that some are refused and
 * come again. Each gets what it would get alone, and all places are free in the end. (crowd.test.ts is about time and memory.)
 */

import assert from "node:assert/strict";
import { test } from "node:test";
import { type Body, body, chunks, error } from "./support/app.ts";
import { idle, type Server, serve } from "./support/command.ts";

const [CLIENTS, REQUESTS, PLACES, WAITING] = [12, 8, 3, 4];
/** Requests of each kind that differ. */
const DIFFERENT = 6;
const PROMPTS = ["Once upon a time", "There was a king", "In a dark wood"];
const model = "ternlight-demo";
const COMPLETIONS = "/v1/completions";

/** A request of each kind by its number, which chooses the prompt and the seed. */
const sampled = (n: number) => ({ model, seed: n % 4, temperature: 1, max_tokens: 16 });
const text = (n: number) => ({ ...sampled(n), prompt: PROMPTS[n % 3]! });
const chat = (n: number) => ({ ...sampled(n), messages: [{ role: "user", content: PROMPTS[n % 3]! }] });
const embedded = (n: number) => ({ model, input: [PROMPTS[n % 3]!, "a queen"] });

type Send = (path: string, body: object) => Promise<Response>;
interface Kind {
  /** What is compared. */
  read(send: Send, n: number): Promise<unknown>;
  /** The same by a request of another form, alone; without it, `read` alone. */
  alone?(send: Send, n: number): Promise<unknown>;
}

const texts = ({ choices }: Body) => choices.map((choice: Body) => choice.text ?? choice.message.content);
/** The texts of a stream, by their index. */
const joined = (all: Body[]) => {
  const found: string[] = [];
  for (const { choices } of all)
    for (const { index, text, delta } of choices) found[index] = (found[index] ?? "") + (text ?? delta.content ?? "");
  return found;
};

const wrong: readonly [path: string, body: object, status: number, told: string][] = [
  [COMPLETIONS, { ...text(0), temperature: 7 }, 400, "temperature"],
  [COMPLETIONS, { ...text(0), model: "gpt-4" }, 404, "model"],
  [COMPLETIONS, { ...text(0), prompt: Array(4000).fill(5), stream: true }, 400, "prompt"],
  ["/v1/chat/completions", { ...chat(0), messages: [{ role: "user" }], stream: true }, 400, "messages[0].content"],
  ["/v1/embeddings", { model, input: [] }, 400, "input"],
];

const kinds: Readonly<Record<string, Kind>> = {
  plain: { read: async (send, n) => texts(await body(send(COMPLETIONS, text(n)))) },
  stream: {
    read: async (send, n) => joined(await chunks(send(COMPLETIONS, { ...text(n), stream: true }))),
    alone: async (send, n) => texts(await body(send(COMPLETIONS, text(n)))),
  },
  several: {
    read: async (send, n) => joined(await chunks(send(COMPLETIONS, { ...text(n), n: 3, stream: true }))),
    alone: async (send, n) => texts(await body(send(COMPLETIONS, { ...text(n), n: 3 }))),
  },
  chat: {
    read: async (send, n) => joined(await chunks(send("/v1/chat/completions", { ...chat(n), stream: true }))),
    alone: async (send, n) => texts(await body(send("/v1/chat/completions", chat(n)))),
  },
  embeddings: {
    read: async (send, n) => (await body(send("/v1/embeddings", embedded(n)))).data.map((one: Body) => one.embedding),
  },
};
const NAMES = Object.keys(kinds);

/** Posts, and comes again where there is no place. */
function sending({ url }: Server, onRefused: () => void): Send {
  return async function send(path, body) {
    const response = await fetch(url + path, { method: "POST", body: JSON.stringify(body) });
    if (response.status !== 429) return response;
    onRefused();
    const ms = Number(response.headers.get("retry-after-ms"));
    assert.ok(ms >= 50, `retry-after-ms is ${ms}`);
    assert.equal((await error(response, 429)).code, "queue_full");
    await new Promise((resolve) => setTimeout(resolve, Math.min(ms, 100)));
    return send(path, body);
  };
}

/** A client that breaks off while it waits, or behind the first bytes of a stream. Returns whether it did. */
async function leaves({ url }: Server, n: number): Promise<boolean> {
  const abort = new AbortController();
  const stream = n % 2 === 0;
  const asked = { ...text(n), max_tokens: 400, ignore_eos: true, stream };
  if (!stream) setTimeout(() => abort.abort(), 10 * (n % 6));
  try {
    const init = { method: "POST", body: JSON.stringify(asked), signal: abort.signal };
    const response = await fetch(url + COMPLETIONS, init);
    if (response.status === 429) await response.text();
    if (response.status === 429) return false;
    await response.body!.getReader().read();
    abort.abort();
  } catch (error) {
    assert.equal((error as Error).name, "AbortError");
  }
  return true;
}

// One runtime of each way to listen.
for (const runtime of ["Node 24", "Bun"]) {
  test(`${runtime}: a mixture of clients`, { timeout: 120_000 }, async (context) => {
    const places = ["--max-sequences", String(PLACES), "--max-waiting", String(WAITING), "--log", "none"];
    const server = await serve(context, places, { runtime });
    const never = sending(server, () => assert.fail("a lone request was refused"));
    const expected = new Map<string, unknown>();
    for (const [name, { read, alone = read }] of Object.entries(kinds))
      for (let n = 0; n < DIFFERENT; n++) expected.set(`${name} ${n}`, await alone(never, n));
    const different = new Set([...expected.values()].map((one) => JSON.stringify(one))).size;
    assert.ok(different >= 2 * DIFFERENT + 3, `there are ${different} answers`);

    const counts = { answered: 0, wrong: 0, gone: 0, refused: 0 };
    const send = sending(server, () => counts.refused++);
    const one = async (client: number, i: number) => {
      const n = client + i;
      if (client % 4 === 3) {
        if (await leaves(server, n)) counts.gone++;
      } else if (i % 3 === 2) {
        const [path, asked, status, param] = wrong[n % wrong.length]!;
        assert.equal((await error(send(path, asked), status)).param, param);
        counts.wrong++;
      } else {
        const name = NAMES[(client + 2 * i) % NAMES.length]!;
        const found = await kinds[name]!.read(send, n % DIFFERENT);
        assert.deepEqual(found, expected.get(`${name} ${n % DIFFERENT}`), `${name} ${n}`);
        counts.answered++;
      }
    };
    const work = async (client: number) => {
      for (let i = 0; i < REQUESTS; i++) await one(client, i);
    };
    await Promise.all(Array.from({ length: CLIENTS }, (_, client) => work(client)));

    context.diagnostic(JSON.stringify(counts));
    assert.deepEqual([counts.answered, counts.wrong], [54, 18]);
    assert.ok(counts.refused > 0 && counts.gone > 0);
    await idle(server);
    const slots = (await body(fetch(`${server.url}/slots`))) as Body[];
    assert.deepEqual(
      slots.map((slot) => slot.is_processing),
      Array(PLACES).fill(false),
    );
    // As many as there are places, and as may wait: none is refused.
    const numbers = Array.from({ length: PLACES + WAITING }, (_, i) => i % DIFFERENT);
    assert.deepEqual(
      await Promise.all(numbers.map((n) => kinds.plain!.read(never, n))),
      numbers.map((n) => expected.get(`plain ${n}`)),
    );
  });
}
