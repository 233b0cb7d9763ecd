/** Errors in words for people who have never seen a tensor. The typed error stays one click away. */

import { size } from "./format.js";

const damaged = "The file is damaged, or was made by a tool that gets this format wrong. Get it again, or another one.";
const otherModel = "Another version of this model may work: the formats that run are listed in docs/guide/formats.md.";
const again = "Load the model again. If this happens every time, it is a bug: the details say where.";

/** By code: what happened, and what to do. */
const words = {
  BadMagic: [
    "This is not a model file.",
    "A model is one .gguf file, or config.json, model.safetensors, tokenizer.json and tokenizer_config.json together.",
  ],
  Truncated: ["The file ends too early.", "It was probably not downloaded to its end. Get it again."],
  BadHeader: ["The file’s header makes no sense.", damaged],
  BadValue: ["The model describes itself with a value that cannot be.", damaged],
  NonFinite: ["The model contains values that are not numbers.", damaged],
  ShapeMismatch: ["Parts of the model do not fit together.", damaged],
  LayoutContradicted: ["The weights contradict their own layout.", damaged],
  MissingTensor: ["A part of the model is missing.", damaged],
  MissingKey: ["Something that describes the model is missing.", "Of a folder, choose all files together."],
  UnsupportedVersion: ["The file has a version that does not run here.", otherModel],
  UnsupportedType: ["The weights are stored in a way that does not run here.", otherModel],
  UnsupportedArchitecture: ["This kind of model does not run here.", otherModel],
  UnsupportedSetting: ["The model uses something that does not run here.", otherModel],
  OutOfMemory: ["There is not enough memory for this model.", "Close other tabs, or take a smaller model."],
  BadAddress: ["This is not an address.", "It begins with https:// or http://, and is that of a file or a folder."],
  NotFound: ["There is no model at this place.", "Check the address; of a folder, choose all files together."],
  Network: [
    "The model could not be fetched.",
    "The server was not reached, or does not let other sites read its files (CORS).",
  ],
  SourceChanged: ["The model changed on its server while it was read.", "Load it again to get the new one."],
  IntegrityMismatch: ["The file is not the one that was asked for.", "It was changed on its way, or on its server."],
  MissingTemplate: ["This model has no chat template.", "It writes on from a text: choose Text above the prompt."],
  WrongModel: [
    "This was kept of another model.",
    "What was read of the conversation is of use to that model alone; this one reads it again.",
  ],
  QueueFull: ["Too much is being written at once.", "Wait until something has ended, and try again."],
  InUse: ["Another tab is using this.", "Close the other tab, or wait until it has finished, and try again."],
  Unreadable: ["The file could not be read.", "It may have been moved, changed or deleted since: choose it again."],
  Unwritable: ["The browser could not write to its storage.", "Its disk may be full, or a setting forbids it."],
  UnsupportedRuntime: [
    "This browser lacks something that the engine needs.",
    "A current Chrome, Edge, Firefox or Safari has all it takes.",
  ],
  UnsupportedOption: ["This model, or this browser, cannot do that.", "The details say what is not supported."],
  ContextFull: ["This is more text than the model can hold.", "Shorten the prompt, or begin a new chat."],
  InvalidArgument: ["This cannot be run as it is.", "The prompt may be empty, or a setting out of its range."],
  BadTokenizer: ["The model’s tokenizer cannot be used.", damaged],
  MissingTokenizer: [
    "The model came without its tokenizer.",
    "Choose tokenizer.json and tokenizer_config.json with it.",
  ],
  BadTemplate: ["The model’s chat template does not work.", "Use the text view, or another version of the model."],
  PartMissing: ["A part of this page could not be loaded.", "Without a network, only what was kept opens. Try again."],
  NoMessage: ["There is nothing to send.", "Write a message first, or attach a text file in a chat."],
  NotText: ["This file is no text.", "Text files in UTF-8 can be attached."],
  TooLarge: ["This file is too large.", "Take a part of it."],
  BadImport: ["This file holds no conversations.", "Choose one that this page has exported."],
  BadSchema: ["The JSON schema cannot be used.", "The details say where it is wrong."],
  BadConstraint: ["The JSON schema cannot be used.", "The details say what it has that is not known here."],
  BadTools: ["The tools cannot be used.", 'They are a list of { type: "function", function: … }.'],
  Damaged: ["What was kept is damaged.", "It is read again, which takes its time once."],
  QuotaExceededError: ["The browser’s storage is full.", "Delete models or sessions under Storage."],
  SecurityError: [
    "This browser keeps nothing for this page.",
    "A private window or a setting forbids it; conversations last until the page is closed.",
  ],
  NotAllowedError: ["The browser did not allow it.", "Copying needs a click in the page, and https."],
  Closed: ["The model was closed.", "Load it again under Change model."],
  Interrupted: ["It was stopped before its end.", "Nothing was lost: begin it again."],
  Internal: ["The engine has made a mistake.", again],
  WorkerFailed: ["The engine has stopped.", again],
  TeamPoisoned: ["The engine has stopped.", again],
};

const elsewhere = "Download the file where you may, and choose it here.";

/** What the details of an error say, where that is more than its code does. */
function specific(code, { reason, status, option, expected, found }) {
  if (code === "InvalidArgument" && option === "source") {
    const told = expected && found ? `It must be ${expected}, not ${found}.` : "The details say what is wrong with it.";
    return ["This is no model, or more than one.", told];
  }
  if (reason === "RepoNotFound") return [words.NotFound[0], "Its name is misspelt, or it is private."];
  if (reason === "GatedRepo")
    return ["This model is gated.", `Its owner wants terms to be accepted on its page. ${elsewhere}`];
  if (status === 401 || status === 403) return ["The server does not give this model to everybody.", elsewhere];
  if (status === 429) return ["The server has had too many requests.", "Try again later."];
  if (status >= 500) return ["The server has failed.", "Try again later."];
  return null;
}

/** @returns what happened, what to do, and the error itself as text */
export function explain(error) {
  if (error?.cause?.name === "SecurityError") return explain(error.cause);
  const code = typeof error?.code === "string" ? error.code : (error?.name ?? "Error");
  const detail = error?.detail ?? {};
  const [title, advice] = specific(code, detail) ?? words[code] ?? ["Something went wrong.", again];
  return {
    title,
    advice: [needs(detail), advice].filter(Boolean).join(" "),
    technical: [`${code}: ${error?.message ?? error}`, ...lines(detail)].join("\n"),
  };
}

function needs({ needed, available }) {
  if (!needed) return "";
  return `It needs ${size(needed)}${available ? `; ${size(available)} can be had` : ""}.`;
}

const lines = (detail) => Object.entries(detail).map(([name, value]) => `${name}: ${value}`);

/** What keeps an engine that could not start from running in this browser, in words; null where nothing does. */
export async function lackingFor(error) {
  if (error.code === "UnsupportedRuntime") {
    return "This browser’s WebAssembly has no SIMD (simd128), which the engine computes with.";
  }
  if (!compiles()) {
    return "WebAssembly is blocked here, by a setting or a content security policy that lacks 'wasm-unsafe-eval'.";
  }
  if (error.code === "WorkerFailed" && !(await workersRun())) {
    return "Workers are blocked here, by a setting, an extension or a content security policy. The engine lives in one.";
  }
  return null;
}

function compiles() {
  try {
    // A module without anything in it.
    return Boolean(new WebAssembly.Module(Uint8Array.of(0, 97, 115, 109, 1, 0, 0, 0)));
  } catch {
    return false;
  }
}

function workersRun() {
  return new Promise((resolve) => {
    try {
      const worker = new Worker(new URL("./probe.js", import.meta.url));
      const settle = (runs) => {
        worker.terminate();
        resolve(runs);
      };
      worker.onmessage = () => settle(true);
      worker.onerror = () => settle(false);
    } catch {
      resolve(false);
    }
  });
}
