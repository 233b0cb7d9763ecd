/**
 * Mixed clients at once: text and chat completions, each as streams, plain requests, slow readers, and some that break off. Every answer is
 * the one that its seed has alone. SERVE_SECONDS (6) says how long, SERVE_REPORT=FILE writes what was seen as JSON. With four minutes or more, the
 * server's memory at the end must be within 5 % of what it was after two: until then the young generations of both threads' heaps grow to
 * the some 108 MB each that V8 gives to garbage, whatever is kept.
 */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { cpus } from "node:os";
import { test } from "node:test";
import { load } from "ternlight";
import { DEMO, parseEvents } from "./support/app.ts";
import { type Server, serve } from "./support/command.ts";

const SECONDS = Number(process.env.SERVE_SECONDS ?? 6);
/** Before that, memory grows without a leak. */
const WARMUP_SECONDS = Math.min(120, SECONDS / 2);
const CLIENTS = 16;
const PROMPTS = ["Once upon a time", "There was a king", "In a dark wood"];
const SEEDS = 4;

/** The demo model's chat is its prompt: both interfaces have the same texts. */
const isChat = (n: number) => n % 5 < 2;
const asking = (n: number) => ({
  model: "ternlight-demo",
  ...(isChat(n) ? { messages: [{ role: "user", content: promptOf(n) }] } : { prompt: promptOf(n) }),
  seed: n % SEEDS,
  temperature: 1,
  max_tokens: 24,
});

const promptOf = (n: number) => PROMPTS[n % PROMPTS.length]!;
const textOf = ({
  text,
  message,
  delta,
}: {
  text?: string;
  message?: { content: string };
  delta?: { content?: string };
}) => text ?? message?.content ?? delta?.content ?? "";

async function ask({ url }: Server, body: object, signal?: AbortSignal): Promise<Response> {
  const response = await fetch(`${url}/v1/${"messages" in body ? "chat/" : ""}completions`, {
    method: "POST",
    body: JSON.stringify(body),
    ...(signal ? { signal } : {}),
  });
  assert.equal(response.status, 200, await (response.ok ? "" : response.text()));
  return response;
}

const kinds = {
  async plain(server: Server, n: number) {
    const { choices } = (await (await ask(server, asking(n))).json()) as { choices: object[] };
    return textOf(choices[0]!);
  },
  async stream(server: Server, n: number, pause = 0) {
    const response = await ask(server, { ...asking(n), stream: true });
    let text = "";
    const decoder = new TextDecoder();
    for await (const bytes of response.body!) {
      text += decoder.decode(bytes, { stream: true });
      if (pause > 0) await new Promise((resolve) => setTimeout(resolve, pause));
    }
    const events = parseEvents(text);
    assert.equal(events.at(-1)!.data, "[DONE]");
    return events
      .slice(0, -1)
      .map(({ data }) => textOf(JSON.parse(data).choices[0]))
      .join("");
  },
  slow: (server: Server, n: number) => kinds.stream(server, n, 30),
  async leaving(server: Server, n: number) {
    const abort = new AbortController();
    const stream = n % 2 === 0;
    const body = { ...asking(n), max_tokens: 400, ignore_eos: true, stream };
    setTimeout(() => abort.abort(), 5 + (n % 7) * 20);
    await ask(server, body, abort.signal)
      .then((response) => response.text())
      .catch(() => {});
    return null;
  },
};

const rss = ({ child }: Server) =>
  Number(/VmRSS:\s*(\d+)/.exec(readFileSync(`/proc/${child.pid}/status`, "utf8"))![1]) * 1024;

/** Tokens in the cache, once the last clients that left are seen to have left: that may take the server a moment. */
async function idle({ url }: Server): Promise<number> {
  for (let left = 50; ; left--) {
    const { models } = (await (await fetch(`${url}/status`)).json()) as { models: { usedTokens: number }[] };
    const used = models[0]!.usedTokens;
    if (used === 0 || left === 0) return used;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

test(`${CLIENTS} mixed clients for ${SECONDS} s`, { timeout: (SECONDS + 120) * 1000 }, async (context) => {
  const server = await serve(context, ["--max-waiting", "64", "--log", "none"]);
  const model = await load(DEMO, { threads: 1 });
  context.after(() => model.close());
  const expected = new Map<string, string>();
  const key = (n: number) => `${asking(n).seed} ${promptOf(n)}`;
  for (let n = 0; n < PROMPTS.length * SEEDS; n++) {
    const { seed } = asking(n);
    const { text } = await model.generate(promptOf(n), { seed, temperature: 1, maxTokens: 24 }).finished;
    expected.set(key(n), text);
  }
  assert.ok(new Set(expected.values()).size > 6, "the answers differ");

  const begun = Date.now();
  const end = begun + SECONDS * 1000;
  let [answered, next] = [0, 0];
  let early = 0;
  const counts: Record<string, number> = {};
  const memory: { second: number; bytes: number }[] = [];
  const sampling = setInterval(() => {
    memory.push({ second: Math.round((Date.now() - begun) / 1000), bytes: rss(server) });
  }, 5000);
  const client = async (i: number) => {
    const kind = (["plain", "stream", "slow", "leaving"] as const)[i % 4]!;
    while (Date.now() < end) {
      const n = next++;
      const text = await kinds[kind](server, n);
      const name = `${kind} ${isChat(n) ? "chat" : "text"}`;
      counts[name] = (counts[name] ?? 0) + 1;
      if (text === null) continue;
      assert.equal(text, expected.get(key(n)), `${kind} ${n}`);
      answered++;
      if (early === 0 && Date.now() > begun + WARMUP_SECONDS * 1000) early = rss(server);
    }
  };
  try {
    await Promise.all(Array.from({ length: CLIENTS }, (_, i) => client(i)));
  } finally {
    clearInterval(sampling);
  }
  const late = rss(server);
  const used = await idle(server);
  context.diagnostic(`${answered} answers; memory ${early} and ${late} bytes`);
  const { SERVE_REPORT: report } = process.env;
  if (report) {
    const machine = { cpu: cpus()[0]!.model, cores: cpus().length, node: process.version };
    const grown = late / early - 1;
    const found = {
      date: new Date().toISOString(),
      machine,
      seconds: SECONDS,
      warmupSeconds: WARMUP_SECONDS,
      clients: CLIENTS,
      answered,
      counts,
    };
    await writeFile(report, `${JSON.stringify({ ...found, early, late, grown, memory })}\n`);
  }
  assert.ok(answered >= CLIENTS / 2);
  assert.equal(Object.keys(counts).length, 8, "every kind of client was there, with both interfaces");
  assert.equal(used, 0);
  if (SECONDS >= 240) assert.ok(late < 1.05 * early, `memory grew from ${early} to ${late} bytes`);
});
