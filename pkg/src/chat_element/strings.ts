/** What the chat says by itself. Pages in other languages give their own words. */

import type { ErrorDetail } from "../types/errors.ts";

/** In `size` stands a size with its unit, in `done` and `total` sizes too. */
export interface ChatStrings {
  /** Names the conversation for screen readers. */
  label: string;
  placeholder: string;
  send: string;
  stop: string;
  you: string;
  model: string;
  /** Beside the button of a model that is not loaded by itself. */
  ask: string;
  /** The same, where it is known how much there is to download. */
  askSize: string;
  load: string;
  cancel: string;
  retry: string;
  checking: string;
  loading: string;
  loadingSize: string;
  ready: string;
  answering: string;
  stopped: string;
  /** The model has ended its answer before its first word. */
  nothing: string;
  notReady: string;
  /** The heading of what the browser or the engine says of an error. */
  details: string;
  /**
   * What went wrong, by the code of an `EngineError`; `Error` stands for every other one. What a server has answered comes first: `Gated`,
   * `Forbidden`, `TooManyRequests` and `ServerFailed`.
   */
  problems: Readonly<Record<string, string>>;
}

const damaged = "The file of this model is damaged, or is not one that runs here.";
const otherKind = "A model of this kind does not run here.";
const stopped = "The model has stopped working.";

export const ENGLISH: ChatStrings = {
  label: "Chat",
  placeholder: "Write a message",
  send: "Send",
  stop: "Stop",
  you: "You",
  model: "Model",
  ask: "The model runs on this device. It has to be downloaded first.",
  askSize: "The model runs on this device. It has to be downloaded first: {size}, once.",
  load: "Load the model",
  cancel: "Cancel",
  retry: "Try again",
  checking: "Looking for the model",
  loading: "Loading the model",
  loadingSize: "Loading the model: {done} of {total}",
  ready: "The model is ready",
  answering: "The model is answering",
  stopped: "Stopped",
  nothing: "The model gave no answer. Ask in other words.",
  notReady: "The model is not loaded yet",
  details: "Details",
  problems: {
    Gated: "This model is gated: its owner wants terms to be accepted first.",
    Forbidden: "The server does not give this model to everybody.",
    TooManyRequests: "The server has had too many requests. Try again later.",
    ServerFailed: "The server has failed. Try again later.",
    Network: "The model could not be fetched. Check the connection, then try again.",
    NotFound: "There is no model at this address.",
    OutOfMemory: "This device does not have enough free memory for the model.",
    ContextFull: "This is more text than the model can read at once. Shorten the message.",
    MissingTemplate: "This model is not made for chats.",
    BadTemplate: "This model is not made for such a chat.",
    IntegrityMismatch: "The file of this model is not the one that was expected.",
    SourceChanged: "The model changed on its server while it was read.",
    UnsupportedRuntime: "This browser is too old to run the model.",
    InvalidArgument: "This page asks for the model in a wrong way.",
    WorkerFailed: stopped,
    TeamPoisoned: stopped,
    Closed: stopped,
    BadMagic: damaged,
    BadHeader: damaged,
    BadValue: damaged,
    BadTokenizer: damaged,
    MissingKey: damaged,
    MissingTensor: damaged,
    MissingTokenizer: damaged,
    ShapeMismatch: damaged,
    Truncated: damaged,
    UnsupportedArchitecture: otherKind,
    UnsupportedSetting: otherKind,
    UnsupportedType: otherKind,
    UnsupportedVersion: otherKind,
    Error: "Something went wrong.",
  },
};

export function problemOf(error: unknown, { problems }: ChatStrings): string {
  const { code, detail } = (error ?? {}) as { code?: unknown; detail?: ErrorDetail };
  const [known] = [answered(detail), code].flatMap((one) =>
    typeof one === "string" && Object.hasOwn(problems, one) ? [problems[one]] : [],
  );
  return known ?? problems.Error ?? ENGLISH.problems.Error!;
}

/** What a server's answer comes to; null where the code of the error says as much. */
function answered({ reason, status }: ErrorDetail = {}): string | null {
  if (reason === "RepoNotFound") return "NotFound";
  if (reason === "GatedRepo") return "Gated";
  if (status === 401 || status === 403) return "Forbidden";
  if (status === 429) return "TooManyRequests";
  return typeof status === "number" && status >= 500 ? "ServerFailed" : null;
}

/** The error itself, for whoever looks after the page. */
export function detailOf(error: unknown): string {
  const { code, message } = (error ?? {}) as { code?: unknown; message?: unknown };
  return [code, message ?? String(error)].filter((part) => typeof part === "string" && part !== "").join(": ");
}

export const filled = (text: string, values: Readonly<Record<string, string>>): string =>
  text.replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole);

/** `248 MB` or `1.2 GB`, as the page's language writes it. */
export function sizeText(bytes: number, language: string | undefined): string {
  const giga = bytes >= 1e9;
  const unit = { style: "unit", unit: giga ? "gigabyte" : "megabyte", maximumFractionDigits: giga ? 1 : 0 } as const;
  const amount = giga ? bytes / 1e9 : Math.max(bytes / 1e6, 1);
  try {
    return new Intl.NumberFormat(language || undefined, unit).format(amount);
  } catch {
    // A page may name a language that is none.
    return new Intl.NumberFormat(undefined, unit).format(amount);
  }
}
