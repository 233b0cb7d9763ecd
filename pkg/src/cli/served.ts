/** What the command line names of models, adapters and requests to serve, checked before anything is loaded. */

import { createPrivateKey, X509Certificate } from "node:crypto";
import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { load } from "../node.ts";
import type { Ask } from "../openai/ask.ts";
import { readChat } from "../openai/chat.ts";
import { readCompletion } from "../openai/completions.ts";
import { ApiError } from "../openai/errors.ts";
import { begin, type Loader } from "../server/serving.ts";
import type { LoadOptions, Model } from "../types/index.ts";
import type { Args } from "./args.ts";
import { DEMO, DEMO_TEMPLATE, sourceOf } from "./model.ts";
import { UsageError } from "./syntax.ts";

/** Tokens of a warm-up's answer: what matters is its prompt. */
const WARMUP_TOKENS = 1;

/** The models by the names that clients use. */
export async function modelsOf(args: Args, { warmup, ...options }: LoadOptions): Promise<Record<string, Loader>> {
  const operands = args.operands.length > 0 ? args.operands : [DEMO];
  const given = args.text("name");
  const warmups = await warmupsOf(args);
  const models: Record<string, Loader> = {};
  for (const [i, operand] of operands.entries()) {
    const { name, source } = named(operand);
    const own = i === 0 && given !== undefined ? given : name;
    if (Object.hasOwn(models, own)) {
      throw new UsageError(`two models are called ${JSON.stringify(own)}: name them, NAME=MODEL`, { option: "MODEL" });
    }
    const settings = source === DEMO ? { chatTemplate: DEMO_TEMPLATE, ...options } : options;
    models[own] = async (more) => {
      const model = await load(sourceOf(source), { ...settings, ...more });
      // Idle time, and what was computed ahead, end with the first look at the model, which the server takes at once.
      if (warmup) await model.warmup();
      const { prefill } = options;
      if (typeof prefill === "string") await model.generate(prefill, { maxTokens: WARMUP_TOKENS }).finished;
      if (i === 0) for (const ask of warmups) await warm(model, ask);
      return model;
    };
  }
  return models;
}

/** A name before an equals sign, where the whole is not a file. */
export function named(operand: string): { name: string; source: string } {
  const [, name, source] = /^([A-Za-z0-9][\w.:@-]*(?:\/[\w.:@-]+)*)=(.+)$/s.exec(operand) ?? [];
  if (name !== undefined && !existsSync(operand)) return { name, source: source! };
  const path = operand.replace(/[?#].*$/s, "").replace(/[/\\]+$/, "");
  const last = path.split(/[/\\]/).at(-1)!;
  const plain = last.replace(/\.(gguf|safetensors)$/i, "").replace(/-00001-of-\d{5}$/, "");
  return { name: plain === "" || plain === "." || plain === ".." ? "model" : plain, source: operand };
}

/** The adapters of the first model by name. */
export function adaptersOf(args: Args): Record<string, string> {
  const pairs = args.texts("servedAdapter").map((text) => {
    const [, name, file] = /^([^=]+)=(.+)$/s.exec(text) ?? [];
    if (name !== undefined) return [name, file!] as const;
    const [option, expected] = ["--adapter", "NAME=FILE"];
    throw new UsageError(`${option} must be ${expected}, not ${JSON.stringify(text)}`, {
      option,
      expected,
      found: text,
    });
  });
  return Object.fromEntries(pairs);
}

export async function keysOf(args: Args): Promise<string[]> {
  const files = args.texts("apiKeyFile").map(async (file) => {
    const option = "--api-key-file";
    const text = await readOwn(option, file);
    // Some editors and shells write UTF-16.
    if (/[\0\ufffd]/.test(text)) throw new UsageError(`${option}: ${file} is no text in UTF-8`, { option, file });
    // An editor's mark of UTF-8 goes with the space around a line.
    const lines = text.split("\n").map((line) => line.trim());
    return lines.filter((line) => !line.startsWith("#"));
  });
  const given = [...args.texts("apiKeys"), ...(await Promise.all(files)).flat()];
  const keys = given.map((key) => key.trim()).filter((key) => key !== "");
  const asked = args.has("apiKeys") || args.has("apiKeyFile");
  if (asked && keys.length === 0) throw new UsageError("there is no key in what --api-key and --api-key-file give");
  return keys;
}

/** Requests as in the interface's own bodies, one a line. */
async function warmupsOf(args: Args): Promise<Ask[]> {
  const file = args.text("warmupRequests");
  if (file === undefined) return [];
  const option = "--warmup";
  const lines = (await readOwn(option, file)).split("\n");
  return lines.flatMap((line, i) => {
    if (line.trim() === "") return [];
    try {
      const body = { model: "", ...JSON.parse(line) };
      return "messages" in body ? readChat(body, WARMUP_TOKENS) : readCompletion(body, WARMUP_TOKENS);
    } catch (error) {
      if (!(error instanceof ApiError || error instanceof SyntaxError)) throw error;
      throw new UsageError(`${option}: line ${i + 1} of ${file}: ${error.message}`, { option, file });
    }
  });
}

async function warm(model: Model, ask: Ask): Promise<void> {
  for (const prompt of ask.prompts) {
    await begin(model, { ...ask, options: { ...ask.options, maxTokens: WARMUP_TOKENS } }, prompt, {}).finished;
  }
}

/** A certificate and its key, checked here because the runtimes do it in different words. */
export async function tlsOf(certFile: string, keyFile: string): Promise<{ cert: string; key: string }> {
  const [cert, key] = [await readOwn("--tls-cert", certFile), await readOwn("--tls-key", keyFile)];
  const parsed = <T>(option: string, file: string, what: string, parse: () => T): T => {
    try {
      return parse();
    } catch (cause) {
      throw new UsageError(`${option}: ${file} is no ${what} in PEM: ${(cause as Error).message}`, { option, file });
    }
  };
  const first = parsed("--tls-cert", certFile, "certificate", () => new X509Certificate(cert));
  const own = parsed("--tls-key", keyFile, "private key", () => createPrivateKey(key));
  if (first.checkPrivateKey(own)) return { cert, key };
  throw new UsageError(`--tls-key: ${keyFile} is not the key of --tls-cert ${certFile}`, { option: "--tls-key" });
}

async function readOwn(option: string, file: string): Promise<string> {
  try {
    return await readFile(file, "utf8");
  } catch (cause) {
    throw new UsageError(`${option}: ${(cause as Error).message}`, { option, file });
  }
}
