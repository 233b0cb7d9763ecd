/** A server that speaks OpenAI's protocol as the target of a load test. */

import { EngineError } from "../../types/errors.ts";
import { type PlannedRequest, words } from "./plan.ts";
import { type Answered, Refused, type Target, type Usage } from "./run.ts";

export interface ServerOptions {
  /** Where `/v1` lies, with or without it. */
  host: string;
  /** The model's name there. @default the first that the server lists */
  model?: string;
  /** Asks `/v1/chat/completions` in place of `/v1/completions`. */
  chat: boolean;
  /** Lets answers end where the model ends them; otherwise the server is asked to go on to the last token. */
  stopAtEos: boolean;
  apiKey?: string;
  signal?: AbortSignal;
}

/** Statuses with which a server says that it is too busy. */
const BUSY = [429, 503];
/** Characters of an error's text that are told. */
const TOLD = 200;

export async function serverTarget(options: ServerOptions): Promise<{ target: Target; name: string }> {
  const base = baseOf(options.host);
  const headers = {
    "content-type": "application/json",
    ...(options.apiKey ? { authorization: `Bearer ${options.apiKey}` } : {}),
  };
  const model = options.model ?? (await firstModel(base, headers, options.signal));
  const url = `${base}/${options.chat ? "chat/completions" : "completions"}`;
  const bodyOf = (planned: PlannedRequest) => {
    const text = planned.text ?? words(planned);
    const prompt = options.chat ? { messages: [{ role: "user", content: text }] } : { prompt: text };
    const sampling = { max_tokens: planned.maxTokens, temperature: 0.8, seed: planned.seed };
    const on = options.stopAtEos ? {} : { ignore_eos: true };
    return { model, ...prompt, ...sampling, ...on, stream: true, stream_options: { include_usage: true } };
  };
  const target: Target = {
    async ask(planned, signal, onPiece) {
      const response = await fetch(url, { method: "POST", headers, body: JSON.stringify(bodyOf(planned)), signal });
      if (!response.ok) throw await refusal(response);
      return answered(response, onPiece);
    },
    usage: () => usageOf(`${base.replace(/\/v1$/, "")}/metrics`, headers),
  };
  return { target, name: `${model} at ${base}` };
}

/** Milliseconds that a server's metrics may take. */
const METRICS_MS = 5000;

/** What the server's own metrics tell, in Prometheus' text. Most programs have the names of a process, few the engine's. */
async function usageOf(url: string, headers: HeadersInit): Promise<Usage> {
  let text = "";
  try {
    const response = await fetch(url, { headers, signal: AbortSignal.timeout(METRICS_MS) });
    if (response.ok) text = await response.text();
  } catch {
    // A server without metrics can be measured all the same.
  }
  const sum = (name: string): number | null => {
    const samples = [...text.matchAll(new RegExp(`^${name}(?:\\{.*\\})? (\\S+)`, "gm"))];
    const found = samples.reduce((all, [, value]) => all + Number(value), 0);
    return samples.length > 0 && Number.isFinite(found) ? found : null;
  };
  const seconds = sum("process_cpu_seconds_total");
  return {
    wasmBytes: sum("ternlight_memory_bytes"),
    processBytes: sum("process_resident_memory_bytes"),
    cpuMs: seconds === null ? null : 1000 * seconds,
  };
}

function baseOf(host: string): string {
  const url = URL.canParse(host) ? new URL(host) : null;
  if (url?.protocol !== "http:" && url?.protocol !== "https:") {
    throw new EngineError(
      "InvalidArgument",
      `loadtest: host must be an address like http://127.0.0.1:8080, not ${host}`,
      {
        option: "host",
        expected: "an http or https address",
        found: host,
      },
    );
  }
  const path = url.pathname.replace(/\/+$/, "");
  return `${url.origin}${path.endsWith("/v1") ? path : `${path}/v1`}`;
}

async function firstModel(base: string, headers: HeadersInit, signal?: AbortSignal): Promise<string> {
  const unreachable = (why: string, cause?: unknown) =>
    new EngineError("Network", `${base}/models lists no model: ${why}`, { url: `${base}/models` }, { cause });
  let response: Response;
  try {
    response = await fetch(`${base}/models`, { headers, ...(signal ? { signal } : {}) });
  } catch (cause) {
    signal?.throwIfAborted();
    throw unreachable((cause as Error).message, cause);
  }
  const text = await response.text();
  if (!response.ok) throw unreachable(`HTTP ${response.status}`);
  try {
    const { id } = JSON.parse(text).data[0];
    if (typeof id === "string") return id;
  } catch {
    // The error below says it.
  }
  throw unreachable("its answer is no list of models; name one with --model");
}

async function refusal(response: Response): Promise<Error> {
  const { status, headers } = response;
  const text = (await response.text()).slice(0, TOLD).trim();
  if (!BUSY.includes(status)) return new Error(`HTTP ${status}: ${text}`);
  const ms = Number(headers.get("retry-after-ms") ?? 1000 * Number(headers.get("retry-after") ?? Number.NaN));
  return new Refused(`HTTP ${status}`, ms >= 0 ? ms : null);
}

interface Chunk {
  error?: { message?: string } | string;
  choices?: { text?: string; delta?: { content?: string | null }; finish_reason?: string | null }[];
  usage?: { completion_tokens?: number; prompt_tokens?: number } | null;
}

async function answered(response: Response, onPiece: () => Promise<void>): Promise<Answered> {
  const type = response.headers.get("content-type") ?? "";
  if (!type.startsWith("text/event-stream") || !response.body) throw new Error(`the answer is no stream but ${type}`);
  let [pieces, ended]: [number, boolean] = [0, false];
  let usage: Chunk["usage"];
  for await (const data of events(response.body)) {
    if (data === "[DONE]") {
      ended = true;
      break;
    }
    const { error, choices, usage: told } = JSON.parse(data) as Chunk;
    if (error) throw new Error(typeof error === "string" ? error : (error.message ?? "an error in the stream"));
    usage = told ?? usage;
    for (const { text, delta, finish_reason } of choices ?? []) {
      if (text ?? delta?.content) {
        pieces++;
        await onPiece();
      }
      ended ||= finish_reason != null;
    }
  }
  if (!ended) throw new Error("the stream broke off");
  return { tokens: usage?.completion_tokens ?? pieces, promptTokens: usage?.prompt_tokens ?? 0 };
}

/** Characters of an event at most. */
const LONGEST = 1 << 24;

/** The data of server-sent events. */
export async function* events(body: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  let rest = "";
  for await (const text of body.pipeThrough(new TextDecoderStream() as TransformStream<Uint8Array, string>)) {
    rest += text;
    // A line may end in CR LF, and the two may come apart.
    const lines = rest.split(/\r\n|\n/);
    rest = lines.pop()!;
    if (rest.length > LONGEST) throw new Error(`an event has more than ${LONGEST} characters`);
    // Other fields and events of several lines are not in this protocol.
    for (const line of lines) if (line.startsWith("data:")) yield line.slice(5).trim();
  }
}
