/** Options of the server: those of its app, which any runtime may call, and those of the command that listens. */

import type { Group } from "../option.ts";

/** What `createApp` of `ternlight/server` takes. */
export const serverApp = {
  models: {
    kind: "object",
    to: "caller",
    otherwise: "required",
    help: "Models, or functions that load them, by the names that clients use.",
  },
  adapters: {
    kind: "object",
    to: "caller",
    otherwise: "none",
    help: "For each model by its name, the sources of adapters by the names that clients use.",
  },
  apiKeys: {
    kind: "texts",
    to: "caller",
    otherwise: "none",
    flag: { name: "api-key", value: "KEY", many: true },
    help: "Keys, one of which each request must have; health checks need none.",
  },
  cors: {
    kind: "texts",
    to: "caller",
    otherwise: "none",
    flag: { value: "ORIGIN", many: true },
    help: "Origins whose pages may use the server; * allows every page.",
  },
  allowedHosts: {
    kind: "texts",
    to: "caller",
    otherwise: "all",
    flag: {
      name: "allowed-host",
      value: "NAME",
      many: true,
      help: "Further names by which the server may be addressed.",
    },
    help: "Names that the Host header may have.",
  },
  maxBody: {
    kind: { integer: [1, 2 ** 30] },
    to: "caller",
    default: 4_000_000,
    unit: "bytes",
    flag: { value: "SIZE", read: "bytes" },
    help: "The size of a request's body at most.",
  },
  maxRequests: {
    kind: { integer: [1, 65_536] },
    to: "caller",
    default: 256,
    unit: "requests",
    flag: { value: "N" },
    help: "Requests under way at most; the next one is refused with status 429.",
  },
  defaultMaxTokens: {
    kind: { integer: [-1, 2 ** 31 - 1] },
    to: "caller",
    default: 128,
    unit: "tokens",
    flag: { value: "N" },
    help: "The most tokens of an answer whose request has no limit; -1 is none.",
  },
  pingSeconds: {
    kind: { integer: [1, 3600] },
    to: "caller",
    default: 15,
    unit: "seconds",
    flag: { name: "ping", value: "S" },
    help: "How often a stream gets a comment, so that nobody takes it for dead.",
  },
  idleUnload: {
    kind: { integer: [1, 2 ** 31 / 1000 - 1] },
    to: "caller",
    otherwise: "never",
    unit: "seconds",
    flag: { value: "S" },
    help: "Unloads a model that had no request for so long; the next one loads it again.",
  },
  adapterSource: {
    kind: "function",
    to: "caller",
    otherwise: "adapters cannot be loaded by requests",
    help: "Makes a source of the path by which a request asks for an adapter.",
  },
  metricsDialect: {
    kind: { values: ["ternlight", "llama", "vllm"] },
    to: "caller",
    default: "ternlight",
    flag: { value: "D" },
    help: "Whose names /metrics has: ternlight's own, llama-server's or vLLM's; ?dialect= asks for others.",
  },
  onTelemetry: {
    kind: "function",
    to: "caller",
    otherwise: "none",
    help: "Called with each measurement of an answer, under OpenTelemetry's names for generative AI.",
  },
  onRequest: {
    kind: "function",
    to: "caller",
    otherwise: "none",
    help: "Called with a record of each request when it has ended.",
  },
} as const satisfies Group;

/** Flags of the command `serve` alone. */
export const serveFlags = {
  host: {
    kind: "text",
    to: "command",
    default: "127.0.0.1",
    flag: { value: "ADDRESS" },
    help: "The address to listen on.",
  },
  port: {
    kind: { integer: [0, 65_535] },
    to: "command",
    default: 8000,
    flag: { value: "N" },
    help: "The port to listen on; 0 takes a free one.",
  },
  unix: {
    kind: "text",
    to: "command",
    flag: { value: "SOCKET" },
    help: "Listens on a Unix socket instead of a port.",
  },
  tlsCert: {
    kind: "text",
    to: "command",
    flag: { value: "FILE" },
    help: "A certificate in PEM, to serve https; needs --tls-key.",
  },
  tlsKey: { kind: "text", to: "command", flag: { value: "FILE" }, help: "The private key of --tls-cert, in PEM." },
  name: {
    kind: "text",
    to: "command",
    otherwise: "that of its file or folder",
    flag: { value: "N" },
    help: "The name of the first model.",
  },
  servedAdapter: {
    kind: "texts",
    to: "command",
    flag: { name: "adapter", value: "NAME=FILE", many: true },
    help: "A LoRA adapter of the first model, which is a model of this name for clients.",
  },
  apiKeyFile: {
    kind: "texts",
    to: "command",
    flag: { value: "FILE", many: true },
    help: "A file of further keys, one a line.",
  },
  warmupRequests: {
    kind: "text",
    to: "command",
    flag: { name: "warmup", value: "FILE.jsonl" },
    help: "Requests, one a line, that are answered before the server is ready.",
  },
  shutdownTimeout: {
    kind: { integer: [0, 86_400] },
    to: "command",
    default: 30,
    unit: "seconds",
    flag: { value: "S" },
    help: "How long running answers may go on when the server is stopped.",
  },
  log: {
    kind: { values: ["text", "json", "none"] },
    to: "command",
    default: "text",
    flag: { value: "L" },
    help: "How a line on stderr tells of each request.",
  },
} as const satisfies Group;
