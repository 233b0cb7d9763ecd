/** Who answers a chat: a model in this process, or a server of one. */

import { load } from "../node.ts";
import type { Fields } from "../openai/sampling.ts";
import { EngineError } from "../types/errors.ts";
import type { ChatMessage, GenerateOptions, LoadOptions, ModelInfo } from "../types/index.ts";
import { DEMO, DEMO_TEMPLATE, sourceOf } from "./model.ts";

export interface Talker {
  /** What is shown of it. */
  name: string;
  warnings: readonly string[];
  /** Pieces of the answer. Ending the iteration, or the signal, stops it. */
  answer(messages: readonly ChatMessage[], signal: AbortSignal): AsyncIterable<string>;
  close(): Promise<void>;
}

export async function modelTalker(operand: string, options: LoadOptions, chosen: GenerateOptions): Promise<Talker> {
  const settings = operand === DEMO ? { chatTemplate: DEMO_TEMPLATE, ...options } : options;
  const model = await load(sourceOf(operand), settings);
  const shown = ({ name, architecture }: ModelInfo) => name ?? architecture;
  return {
    name: shown(model.info),
    warnings: model.info.warnings,
    async *answer(messages, signal) {
      // What was computed of the conversation is found by its content.
      const generation = model.chat(messages, chosen);
      signal.addEventListener("abort", () => generation.stop(), { once: true });
      for await (const { text } of generation) yield text;
    },
    close: () => model.close(),
  };
}

/**
 * The base address of the server at an address, or null where a model's file may be.
 *
 * @throws {EngineError} `Network` for a host without a path that serves none of OpenAI's interface
 */
export async function serverAt(
  address: string,
  key: string | undefined,
): Promise<{ base: string; models: string[] } | null> {
  const base = address.replace(/\/+$/, "").replace(/\/v1$/, "");
  const bare = URL.canParse(base) && new URL(base).pathname === "/";
  const response = await fetch(`${base}/v1/models`, { headers: headersOf(key) }).catch((cause) => {
    if (bare) throw failed(address, `no server answers: ${cause.cause?.message || cause.message}`);
    return null;
  });
  if (!response) return null;
  const body = (await response.json().catch(() => null)) as {
    data?: { id: string }[];
    error?: { message: string };
  } | null;
  if (response.status === 401) throw failed(address, body?.error?.message ?? "a key is missing");
  if (response.ok && Array.isArray(body?.data)) return { base, models: body.data.map(({ id }) => id) };
  if (bare) throw failed(address, `its /v1/models is no list of models (status ${response.status})`);
  return null;
}

/** @param fields further ones of each request */
export function serverTalker(base: string, model: string, key: string | undefined, fields: Fields): Talker {
  return {
    name: `${model} at ${base}`,
    warnings: [],
    async *answer(messages, signal) {
      const response = await fetch(`${base}/v1/chat/completions`, {
        method: "POST",
        headers: { "content-type": "application/json", ...headersOf(key) },
        body: JSON.stringify({ model, messages, stream: true, ...fields }),
        signal,
      });
      if (!response.ok || !response.body) {
        const body = (await response.json().catch(() => null)) as { error?: { message: string } } | null;
        throw failed(base, body?.error?.message ?? `status ${response.status}`);
      }
      for await (const data of eventData(response.body)) {
        if (data === "[DONE]") return;
        const { choices, error } = JSON.parse(data);
        if (error) throw failed(base, error.message);
        const text = choices?.[0]?.delta?.content;
        if (typeof text === "string" && text !== "") yield text;
      }
    },
    close: async () => {},
  };
}

const headersOf = (key: string | undefined): Record<string, string> => (key ? { authorization: `Bearer ${key}` } : {});

const failed = (address: string, reason: string) => new EngineError("Network", `${address}: ${reason}`);

/** The data of server-sent events. */
async function* eventData(body: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let text = "";
  for await (const bytes of body) {
    text += decoder.decode(bytes, { stream: true });
    const lines = text.split(/\r?\n/);
    text = lines.pop()!;
    for (const line of lines) if (line.startsWith("data: ")) yield line.slice("data: ".length);
  }
}
