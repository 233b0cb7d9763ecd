/**
 * The codes of every EngineError: what they mean, when they occur and what to do. Only types of this file reach a page; the
 * reference page of errors is generated from it.
 */

export interface ErrorMeaning {
  readonly meaning: string;
  /** When it is thrown. */
  readonly when: string;
  /** What to do about it. */
  readonly action: string;
}

const getAgain = "Download the file again, or use another one.";
const otherModel = "Use another version of the model; the guide to formats lists what runs.";

export const errorCodes = {
  BadConstraint: {
    meaning: "A schema, regular expression or grammar cannot be kept to.",
    when: "generate or chat with responseFormat or toolChoice",
    action: "Correct it where detail.option and detail.place say; leave out keywords that are not supported.",
  },
  BadHeader: {
    meaning: "A header contradicts itself, its limits or the length of its file.",
    when: "load, inspect, canRun, loadAdapter, convert",
    action: getAgain,
  },
  BadMagic: {
    meaning: "The bytes are of no format that is known here.",
    when: "load, inspect, canRun, loadAdapter, restoreSession",
    action: "Check that the address or file is a GGUF, a safetensors file or a saved session, and no web page.",
  },
  BadTemplate: {
    meaning: "The chat template is no text, does not parse, or fails on these messages.",
    when: "load, chat",
    action: "Pass another template in the load option chatTemplate, or messages that the template accepts.",
  },
  BadTokenizer: {
    meaning: "The tokenizer's data are damaged, or of a kind that does not run here.",
    when: "load, inspect, convert",
    action: getAgain,
  },
  BadValue: {
    meaning: "A metadata value or config field has a wrong type or is out of range.",
    when: "load, inspect, canRun, loadAdapter",
    action: getAgain,
  },
  Closed: {
    meaning: "The model or the session was closed.",
    when: "every call after close, and calls that were running",
    action: "Load the model again, or open another session.",
  },
  ContextFull: {
    meaning: "The conversation is longer than its context.",
    when: 'generate and chat: a prompt that does not fit, unless onContextFull is "shift"; or an answer, where it is "error"',
    action: 'Raise contextLength, shorten the prompt, or choose onContextFull: "shift".',
  },
  Damaged: {
    meaning: "A saved session is not what was saved.",
    when: "restoreSession",
    action: "Restore from another copy.",
  },
  Exists: {
    meaning: "The file to write is there already.",
    when: "the commands convert and batch",
    action: "Choose another name, or give --force.",
  },
  InUse: {
    meaning: "A cached file is open in this tab or another one.",
    when: "cache.delete in a page",
    action: "Close the models that use it, then delete it.",
  },
  IntegrityMismatch: {
    meaning: "A file has another SHA-256 than the option integrity says, or none is given for it.",
    when: "load, loadAdapter",
    action: "Treat the file as not trusted; check where it comes from and the hash that was published.",
  },
  Internal: {
    meaning: "An error without a code of its own.",
    when: "any call",
    action: "Report it with the stack that --debug shows: this is a bug here, or in the runtime.",
  },
  Interrupted: {
    meaning: "A command was ended by Ctrl-C.",
    when: "commands of the command line",
    action: "Nothing: the exit status is 130.",
  },
  InvalidArgument: {
    meaning: "A value of the caller has a wrong type, is out of range, or has an unknown name.",
    when: "every call",
    action: "detail.option names the option, detail.expected what it may be.",
  },
  LayoutContradicted: {
    meaning: "Weights do not have the layout that the rows looked at first had.",
    when: "load, of a file whose tensor types are not uniform",
    action: "Load with repack: false, which reads every tensor as it is.",
  },
  MissingKey: {
    meaning: "A metadata key or config field that must be there is not.",
    when: "load, inspect, canRun, loadAdapter",
    action: "Give all files of the model together, or use another version of it.",
  },
  MissingTemplate: {
    meaning: "The model has no chat template.",
    when: "chat",
    action: "Pass one in the load option chatTemplate, or use generate.",
  },
  MissingTensor: {
    meaning: "A tensor that the architecture needs is not in the file.",
    when: "load, inspect, canRun, loadAdapter",
    action: getAgain,
  },
  MissingTokenizer: {
    meaning: "The model came without a tokenizer.",
    when: "generate with a text, chat, tokenize, embed with a text",
    action: "Load the folder with tokenizer.json, or give token ids.",
  },
  Network: {
    meaning: "A server was not reached, answered with an error, or does not allow other origins.",
    when: "load, inspect, canRun, loadAdapter",
    action: "Try again; ternlight doctor URL says what the server lacks.",
  },
  NonFinite: {
    meaning: "There is a NaN or an infinity among weights, scales or results.",
    when: "load, generate",
    action: getAgain,
  },
  NotFound: {
    meaning: "A file, or an entry of a folder, is not there.",
    when: "load, inspect, canRun, loadAdapter, commands that read files",
    action: "Check the address or the path, and give all files of a folder.",
  },
  NotStrict: {
    meaning: "A matrix of the layers holds more values than --strict allows.",
    when: "the command inspect --strict",
    action: "Use a model whose layers are ternary or 1-bit throughout, if that is what you need.",
  },
  OutOfMemory: {
    meaning: "Memory for the model, a request or an adapter is not available.",
    when: "load, generate, loadAdapter",
    action: "Use the settings in detail.suggestion, a smaller model, or a larger maxAdapterBytes.",
  },
  QueueFull: {
    meaning: "As many requests wait as may.",
    when: "generate, chat, logits, embed, perplexity",
    action: "Try again later, or raise maxWaiting.",
  },
  ShapeMismatch: {
    meaning: "The shape of a tensor does not fit the model.",
    when: "load, inspect, canRun, loadAdapter",
    action: "Use files that belong together; an adapter must be one of this model.",
  },
  SourceChanged: {
    meaning: "A file changed on its server while it was read.",
    when: "load, inspect, loadAdapter",
    action: "Load again to get the new file.",
  },
  TeamPoisoned: {
    meaning: "A thread of the engine has died.",
    when: "every call of a model with threads",
    action: "Load the model again; report it where it happens repeatedly.",
  },
  TooLarge: {
    meaning: "A file or a part of it is larger than anything that belongs there.",
    when: "load, inspect, canRun, loadAdapter",
    action: "Check that the address names the right file.",
  },
  Truncated: {
    meaning: "The bytes end before what they announce.",
    when: "load, inspect, canRun, loadAdapter",
    action: getAgain,
  },
  Unreadable: {
    meaning: "A local file is there, but reading it failed.",
    when: "load, inspect, canRun, loadAdapter, convert",
    action: "Check its permissions and the disk.",
  },
  UnsupportedArchitecture: {
    meaning: "The model's architecture does not run here.",
    when: "load, inspect, canRun",
    action: otherModel,
  },
  UnsupportedOption: {
    meaning: "This runtime, or this build, cannot do what an option asks for.",
    when: "load, generate",
    action: "Leave the option out, or change what the message names: headers, the build, a module for an edge worker.",
  },
  UnsupportedRuntime: {
    meaning: "The runtime has no WebAssembly SIMD, or starts no workers, as in a service worker.",
    when: "load, inspect, canRun",
    action: "Use a current browser or runtime, and `ternlight/edge` where there are no workers.",
  },
  UnsupportedSetting: {
    meaning: "The architecture is known, but uses a setting that does not run here.",
    when: "load, inspect, canRun, loadAdapter",
    action: otherModel,
  },
  UnsupportedType: {
    meaning: "A storage type does not run here, or cannot be converted.",
    when: "load, canRun, loadAdapter, convert",
    action: otherModel,
  },
  UnsupportedVersion: {
    meaning: "The format is known, but this version of it is not.",
    when: "load, inspect, canRun, loadAdapter, restoreSession",
    action: otherModel,
  },
  Unwritable: {
    meaning: "A file cannot be written.",
    when: "the commands convert and run --session",
    action: "Check the folder, its permissions and the free space.",
  },
  WorkerFailed: {
    meaning: "A worker ended, or did not start.",
    when: "every call",
    action: "Load the model again; ternlight doctor says what hinders workers and wasm from starting.",
  },
  WrongModel: {
    meaning: "A saved session belongs to another model or to other adapters.",
    when: "restoreSession",
    action: "Restore it in the model, with the kvCacheType, activations and adapters, that it was saved with.",
  },
} as const satisfies Record<string, ErrorMeaning>;

/** What an EngineError may have as its code. */
export type ErrorCode = keyof typeof errorCodes;
