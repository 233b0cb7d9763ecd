/** Flags that belong to commands alone. */

import { type Group, MAX_TOKENS } from "../option.ts";

export const everyCommand = {
  noCache: {
    kind: "boolean",
    to: "command",
    flag: {},
    help: "Keep nothing of what comes from servers, and read nothing that was kept.",
  },
  json: { kind: "boolean", to: "command", flag: {}, help: "Print one JSON object on stdout." },
  debug: { kind: "boolean", to: "command", flag: {}, help: "Show where in the program an error comes from." },
  help: { kind: "boolean", to: "command", flag: { short: "h" }, help: "Show this help." },
  version: { kind: "boolean", to: "command", flag: { short: "v" }, help: "Show the version." },
} as const satisfies Group;

export const promptText = {
  prompt: {
    kind: "text",
    to: "command",
    flag: { short: "p", value: "TEXT" },
    help: "The text itself; - is standard input.",
  },
} as const satisfies Group;

export const promptIds = {
  ids: {
    kind: "list",
    to: "command",
    flag: { value: "1,2,3", read: "ids" },
    help: "Token ids, which are fed exactly as given.",
  },
} as const satisfies Group;

export const formatFlags = {
  jsonSchema: {
    kind: "text",
    to: "command",
    flag: { value: "FILE|JSON" },
    help: "Keep to a JSON schema, given as it is or in a file.",
  },
  regex: { kind: "text", to: "command", flag: { value: "R" }, help: "Keep to a regular expression." },
  grammar: {
    kind: "text",
    to: "command",
    flag: { value: "FILE" },
    help: "Keep to a grammar in Lark's syntax, from its rule start.",
  },
} as const satisfies Group;

export const adapterFlags = {
  adapter: {
    kind: "texts",
    to: "command",
    flag: { value: "FILE[=SCALE]", many: true },
    help: "A LoRA adapter (PEFT's folder or a GGUF), whose effect is multiplied by SCALE (1 by itself).",
  },
} as const satisfies Group;

export const sessionFlags = {
  session: {
    kind: "text",
    to: "command",
    flag: { value: "FILE" },
    help: "Go on from the conversation in FILE, if there is one, and keep this one in it.",
  },
} as const satisfies Group;

export const inspectFlags = {
  noWeights: {
    kind: "boolean",
    to: "command",
    flag: {},
    help: "Read the header alone, as for URLs; the weights of local files are read.",
  },
  strict: {
    kind: { values: ["1bit", "ternary"] },
    to: "command",
    flag: { value: "KIND" },
    help: "Fail unless the matrices of the layers hold nothing else.",
  },
} as const satisfies Group;

export const convertFlags = {
  type: {
    kind: { values: ["tq2_0", "tq1_0", "q1_0", "i2_s", "keep"] },
    to: "command",
    otherwise: "by the source's codes",
    flag: { value: "T" },
    help: "The storage type of the layers' matrices; keep leaves those of floats and of wider types as they are stored.",
  },
  embedding: {
    kind: { values: ["keep", "f16", "q8_0", "q6_k", "q4_0"] },
    to: "command",
    otherwise: "as the head",
    flag: { value: "T" },
    help: "The storage type of the embedding, in exactly this type.",
  },
  head: {
    kind: { values: ["keep", "f16", "q8_0", "q6_k", "q4_0"] },
    to: "command",
    default: "keep",
    flag: { value: "T" },
    help: "The storage type of the head, and of the embedding unless --embedding is given; what takes no more as it is stored than q8_0, q6_k or q4_0 stays as it is.",
  },
  force: { kind: "boolean", to: "command", default: false, flag: {}, help: "Replace the file if there is one." },
} as const satisfies Group;

export const chatFlags = {
  system: {
    kind: "text",
    to: "command",
    flag: { value: "TEXT" },
    help: "What the model is told before the conversation.",
  },
  load: {
    kind: "text",
    to: "command",
    flag: { value: "FILE" },
    help: "Goes on from a conversation that /save has kept.",
  },
  servedModel: {
    kind: "text",
    to: "command",
    otherwise: "the server's first",
    flag: { name: "model", value: "NAME" },
    help: "The server's model.",
  },
  key: {
    kind: "text",
    to: "command",
    otherwise: "TERNLIGHT_API_KEY",
    flag: { name: "api-key", value: "KEY" },
    help: "The server's key.",
  },
} as const satisfies Group;

const MOST = 2 ** 20;

export const bench = {
  prompt: {
    kind: { integer: [1, MOST] },
    to: "command",
    default: 128,
    unit: "tokens",
    flag: { name: "prompt-tokens", short: "p", value: "N" },
    help: "Tokens of the prompt.",
  },
  decode: {
    kind: { integer: [1, MOST] },
    to: "command",
    default: 32,
    unit: "tokens",
    flag: { value: "N" },
    help: "Tokens that are generated after the first one.",
  },
  batch: {
    kind: { integer: [1, 4096] },
    to: "command",
    default: 1,
    unit: "conversations",
    flag: {
      value: "N[,N…]",
      read: "sweep",
      help: "Conversations that are computed side by side; of several numbers each is measured, and the knee is named.",
    },
    help: "Conversations that are computed side by side.",
  },
  ctx: {
    kind: { integer: [0, MOST] },
    to: "command",
    default: 0,
    unit: "tokens",
    flag: {
      value: "N[,N…]",
      read: "sweep",
      help: "Tokens that each conversation holds before its prompt; of several numbers each is measured, and the knee is named.",
    },
    help: "Tokens that each conversation holds before its prompt.",
  },
  warmup: {
    kind: { integer: [0, 1000] },
    to: "command",
    default: 1,
    unit: "runs",
    flag: { value: "N" },
    help: "Runs that do not count.",
  },
  repeat: {
    kind: { integer: [1, 1000] },
    to: "command",
    default: 5,
    unit: "runs",
    flag: { value: "N" },
    help: "Runs that count.",
  },
  profile: {
    kind: "boolean",
    to: "command",
    default: false,
    flag: {},
    help: "Show where the time goes, operation by operation, in runs of their own.",
  },
  trace: {
    kind: "boolean",
    to: "command",
    default: false,
    flag: {},
    help: "Show each matrix with the range of what it reads and writes, for 16 tokens and for one, and where its time goes.",
  },
  seconds: {
    kind: { integer: [1, 604800] },
    to: "command",
    unit: "seconds",
    flag: { value: "N" },
    help: "Go on for so long, and compare speed and memory of the first minute with those of the last.",
  },
  maxGrowth: {
    kind: { number: [0, 1000] },
    to: "command",
    unit: "per cent",
    flag: { value: "P" },
    help: "With --seconds: exit with 1 when memory grew by more than so many per cent.",
  },
  roofline: {
    kind: "boolean",
    to: "command",
    default: true,
    flag: { name: "no-roofline", sets: false, help: "Do not measure what this machine reads and multiplies at best." },
    help: "Measures what this machine reads and multiplies at best.",
  },
  readBytes: {
    kind: { integer: [2 ** 20, 1e9] },
    to: "command",
    otherwise: "640 MB, at most a quarter of what is free",
    unit: "bytes",
    help: "Bytes to read for the roofline: more than the machine's caches hold.",
  },
} as const satisfies Group;

export const syntheticFlags = {
  shape: {
    kind: "text",
    to: "command",
    flag: { value: "S" },
    help: "A model of random weights, by the name of its shape or with other sizes: 2b4t,layers=4.",
  },
  weightType: {
    kind: "text",
    to: "command",
    flag: { name: "type", value: "T" },
    help: "Its storage type, with others for single matrices: tq2_0,ffn_down=q6_k.",
  },
  embeddingType: {
    kind: "text",
    to: "command",
    flag: { value: "T" },
    help: "The storage type of its embedding and head.",
  },
} as const satisfies Group;

export const loadtest = {
  clients: {
    kind: { integer: [1, 1024] },
    to: "command",
    default: 32,
    unit: "clients",
    flag: { value: "N" },
    help: "Clients that ask at once; each one asks again when it has its answer.",
  },
  seconds: {
    kind: { integer: [1, 86400] },
    to: "command",
    default: 30,
    unit: "seconds",
    flag: { value: "N" },
    help: "How long the test runs.",
  },
  seed: {
    kind: { integer: [0, MAX_TOKENS] },
    to: "command",
    default: 1,
    flag: { value: "S" },
    help: "The seed of prompts, lengths and the clients' behaviour.",
  },
} as const satisfies Group;

/** Of a load test that measures; without any of them but `serverModel` it compares answers instead. */
export const loadPlan = {
  host: {
    kind: "text",
    to: "command",
    flag: { value: "URL" },
    help: "Ask a server that speaks OpenAI's protocol, in place of a model in this process.",
  },
  serverModel: {
    kind: "text",
    to: "command",
    otherwise: "the first that a server lists",
    flag: { name: "model", value: "MODEL" },
    help: "With --host the model's name at the server, else the model to load, as where none precedes the flags.",
  },
  apiKey: { kind: "text", to: "command", flag: { value: "KEY" }, help: "Sent to the server with every request." },
  chat: {
    kind: "boolean",
    to: "command",
    default: false,
    flag: {},
    help: "Ask the server for chats in place of completions.",
  },
  stopAtEos: {
    kind: "boolean",
    to: "command",
    default: false,
    flag: {},
    help: "Let a server's answers end where its model ends them, not only at their last token.",
  },
  rps: {
    kind: { number: [0.001, 100000] },
    to: "command",
    unit: "requests/s",
    flag: { value: "R" },
    help: "Begin so many requests a second at random times, whatever the target does; times count from the moment planned.",
  },
  users: {
    kind: { integer: [1, 65536] },
    to: "command",
    otherwise: "as many as may be in flight",
    unit: "users",
    flag: { value: "N" },
    help: "So many users, each of whom asks again when the answer is there.",
  },
  duration: {
    kind: { number: [0.1, 604800] },
    to: "command",
    default: 30,
    unit: "seconds",
    flag: { value: "S" },
    help: "How long requests are begun in each run.",
  },
  batchSizes: {
    kind: { integer: [1, 65536] },
    to: "command",
    otherwise: "one run without a limit",
    flag: { value: "N[,N…]", read: "sweep" },
    help: "The most requests in flight, with a run for each number; the knee is named.",
  },
  latencyPercentiles: {
    kind: { number: [0, 100] },
    to: "command",
    otherwise: "50,90,99",
    flag: { value: "P[,P…]", read: "sweep" },
    help: "Percentiles of the times that are reported.",
  },
  promptTokens: {
    kind: { integer: [1, 1048576] },
    to: "command",
    default: 128,
    unit: "tokens",
    flag: { value: "N" },
    help: "Tokens of a made prompt; a server gets so many words.",
  },
  prompts: {
    kind: "text",
    to: "command",
    flag: { value: "FILE" },
    help: "Prompts to ask in turn, one in a line.",
  },
  maxTokens: {
    kind: { integer: [1, 1048576] },
    to: "command",
    default: 64,
    unit: "tokens",
    flag: { short: "n", value: "N" },
    help: "Tokens of an answer.",
  },
  mix: {
    kind: "text",
    to: "command",
    flag: { value: "SHORT:LONG" },
    help: "So many short requests for so many long ones; short ones have an eighth of the tokens.",
  },
  abort: {
    kind: { number: [0, 1] },
    to: "command",
    default: 0,
    flag: { value: "SHARE" },
    help: "The share of requests that are broken off.",
  },
  slow: {
    kind: { number: [0, 1] },
    to: "command",
    default: 0,
    flag: { value: "SHARE" },
    help: "The share of answers that are read slowly.",
  },
  csv: { kind: "text", to: "command", flag: { value: "FILE" }, help: "Write a line for each run to a file." },
  plot: { kind: "text", to: "command", flag: { value: "FILE.svg" }, help: "Write a picture of latency over load." },
} as const satisfies Group;

export const cacheFlags = {
  all: { kind: "boolean", to: "command", flag: {}, help: "Delete everything." },
} as const satisfies Group;
