/**
 * Mixed clients at once: streams, plain requests, slow readers, and some that break off. Every answer is the one that its seed has
 * alone. SERVE_SECONDS (6) says how long; with four minutes or more, the server's memory must stay within 5 % of what it was after half
 * of them: until then the heaps of both threads grow to the size that V8 gives to garbage, whatever is kept.
 */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { load } from "ternlight";
import { DEMO, parseEvents } from "./support/app.ts";
import { type Server, serve } from "./support/command.ts";

const SECONDS = Number(process.env.SERVE_SECONDS ?? 6);
const CLIENTS = 16;
const PROMPTS = ["Once upon a time", "There was a king", "In a dark wood"];
const SEEDS = 4;

const asking = (n: number) => ({
  model: "ternlight-demo",
  prompt: PROMPTS[n % PROMPTS.length]!,
  seed: n % SEEDS,
  temperature: 1,
  max_tokens: 24,
});

async function ask({ url }: Server, body: object, signal?: AbortSignal): Promise<Response> {
  const response = await fetch(`${url}/v1/completions`, {
    method: "POST",
    body: JSON.stringify(body),
    ...(signal ? { signal } : {}),
  });
  assert.equal(response.status, 200, await (response.ok ? "" : response.text()));
  return response;
}

const kinds = {
  async plain(server: Server, n: number) {
    const { choices } = (await (await ask(server, asking(n))).json()) as { choices: { text: string }[] };
    return choices[0]!.text;
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
      .map(({ data }) => JSON.parse(data).choices[0].text)
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

test(`${CLIENTS} mixed clients for ${SECONDS} s`, { timeout: (SECONDS + 120) * 1000 }, async (context) => {
  const server = await serve(context, ["--max-waiting", "64", "--log", "none"]);
  const model = await load(DEMO, { threads: 1 });
  context.after(() => model.close());
  const expected = new Map<string, string>();
  const key = ({ prompt, seed }: { prompt: string; seed: number }) => `${seed} ${prompt}`;
  for (let n = 0; n < PROMPTS.length * SEEDS; n++) {
    const { prompt, seed } = asking(n);
    const { text } = await model.generate(prompt, { seed, temperature: 1, maxTokens: 24 }).finished;
    expected.set(key(asking(n)), text);
  }
  assert.ok(new Set(expected.values()).size > 6, "the answers differ");

  const end = Date.now() + SECONDS * 1000;
  let [answered, next] = [0, 0];
  let early = 0;
  const client = async (i: number) => {
    const kind = (["plain", "stream", "slow", "leaving"] as const)[i % 4]!;
    while (Date.now() < end) {
      const n = next++;
      const text = await kinds[kind](server, n);
      if (text === null) continue;
      assert.equal(text, expected.get(key(asking(n))), `${kind} ${n}`);
      answered++;
      if (early === 0 && Date.now() > end - (SECONDS * 1000) / 2) early = rss(server);
    }
  };
  await Promise.all(Array.from({ length: CLIENTS }, (_, i) => client(i)));
  const late = rss(server);
  const { models } = (await (await fetch(`${server.url}/status`)).json()) as { models: { usedTokens: number }[] };
  context.diagnostic(`${answered} answers; memory ${early} and ${late} bytes`);
  assert.ok(answered >= CLIENTS / 2);
  assert.equal(models[0]!.usedTokens, 0);
  if (SECONDS >= 240) assert.ok(late < 1.05 * early, `memory grew from ${early} to ${late} bytes`);
});
