/** Options of an answer besides sampling, and of chats. */

import { type Group, MAX_TOKENS } from "../option.ts";

export const generation = {
  maxTokens: {
    kind: { integer: [0, MAX_TOKENS] },
    to: "host",
    otherwise: "until the model ends or the context is full",
    unit: "tokens",
    flag: { short: "n", value: "N" },
    help: "The most tokens of the answer.",
  },
  stop: {
    kind: "stop",
    to: "host",
    otherwise: "none",
    flag: { value: "TEXT", many: true },
    help: "Texts that end the answer and are not part of it: at most 64, each of 1 to 1,024 characters.",
  },
  ignoreEos: {
    kind: "boolean",
    to: "host",
    default: false,
    flag: {},
    help: "Continues at the model's end tokens.",
  },
  keepSpecialTokens: {
    kind: "boolean",
    to: "host",
    default: false,
    flag: {},
    help: "Keeps special tokens in the text of the answer.",
  },
  onContextFull: {
    kind: { values: ["stop", "error", "shift"] },
    to: "host",
    default: "stop",
    flag: { value: "W" },
    help: "What happens when the context is full: the answer ends, fails, or goes on without a chat's oldest turns or a text's middle.",
  },
  truncate: {
    kind: { values: ["none", "left", "right", "middle"] },
    to: "host",
    default: "none",
    flag: { value: "SIDE" },
    help: "Where a prompt that is longer than the context loses tokens, to leave room for its answer.",
  },
  sanitize: {
    kind: "boolean",
    to: "caller",
    default: false,
    was: "preprocess",
    flag: {},
    help: "Removes invisible characters and runs of spaces, blank lines or emoji from the prompt.",
  },
} as const satisfies Group;

export const prompting = {
  addSpecial: {
    kind: "boolean",
    to: "prompt",
    default: true,
    flag: { name: "no-special", sets: false, help: "Do not add what the tokenizer adds to a text (BOS)." },
    help: "Adds what the tokenizer adds to a text (BOS); has no effect on ids and chats.",
  },
} as const satisfies Group;

export const constraints = {
  responseFormat: {
    kind: "responseFormat",
    to: "caller",
    otherwise: "any text",
    was: "format",
    help: "A JSON schema, regular expression or grammar that the answer keeps to.",
  },
  logitsProcessor: {
    kind: "function",
    to: "caller",
    otherwise: "none",
    help: "A function that changes the logits before every choice.",
  },
} as const satisfies Group;

export const handing = {
  pieces: {
    kind: { values: ["joined", "token"] },
    to: "caller",
    otherwise: '"joined" in a page, "token" elsewhere',
    help: "Whether each token's text is a piece, or all that has come; joined pieces come once in a frame of a page.",
  },
} as const satisfies Group;

export const adapting = {
  adapters: {
    kind: "adapters",
    to: "host",
    otherwise: "none",
    help: "The loaded adapters to apply, each with a scale from -1000 to 1000.",
  },
} as const satisfies Group;

/** Of a model, not of a session. */
export const completions = {
  n: {
    kind: { integer: [1, 256] },
    to: "caller",
    default: 1,
    unit: "answers",
    flag: { name: "completions", value: "N" },
    help: "Answers to the one prompt, computed side by side; the one at index i has the seed plus i.",
  },
} as const satisfies Group;

export const chatting = {
  tools: {
    kind: "list",
    to: "prompt",
    otherwise: "none",
    help: "Tools that the model may call, in the shape that its template expects.",
  },
  toolChoice: {
    kind: "toolChoice",
    to: "prompt",
    default: "auto",
    help: 'Whether the model may ("auto"), must ("required") or must not ("none") call a tool, or { name } for a certain one.',
  },
  templateOptions: {
    kind: "object",
    to: "prompt",
    otherwise: "none",
    help: "Further variables for the chat template.",
  },
  parseSpecialTokens: {
    kind: "boolean",
    to: "prompt",
    default: false,
    help: "Whether special tokens that messages, tools and documents write out become those tokens; they are text otherwise.",
  },
} as const satisfies Group;
