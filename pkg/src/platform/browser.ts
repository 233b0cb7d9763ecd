import { openOpfs } from "../cache/opfs.ts";
import type { Port, WorkerPort } from "../rpc/port.ts";
import type { Kept, OnHub } from "../source/hub.ts";
import { EngineError } from "../types/errors.ts";

export function spawnEngine(): WorkerPort {
  // Service workers have none, and Chromium's shared workers.
  if (typeof Worker === "undefined") throw new EngineError("UnsupportedRuntime", "no workers here: use ternlight/edge");
  try {
    // Vite, webpack and Turbopack look for exactly this expression, options included.
    return owned(new Worker(new URL("./worker.js", import.meta.url), { type: "module" }));
  } catch {
    // A page may not start another origin's script, but a script of its own may import it. Not by `new URL`: see above.
    const script = `import ${JSON.stringify(import.meta.url.replace(/[^/]*$/, "worker.js"))}`;
    const address = URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
    return owned(new Worker(address, { type: "module" }));
  }
}

/**
 * Starts a sibling by the worker's own address, which is right wherever a bundler has put the file: if the file were named again,
 * bundlers would follow the worker into itself (Vite refuses). A bundler may also have made it a classic script, hence the check.
 */
export function spawnSibling(): WorkerPort {
  return owned(
    new Worker(self.location.href, { type: isClassicScript() ? "classic" : "module", name: "ternlight pool" }),
  );
}

export function ownPort(): Port {
  // An unhandled rejection would otherwise stay unnoticed inside the worker.
  self.addEventListener("unhandledrejection", (event) => reportError(event.reason));
  const port: Port = {
    onmessage: null,
    post: (message, transfer) => self.postMessage(message, { transfer: [...(transfer ?? [])] }),
  };
  self.addEventListener("message", (event) => port.onmessage?.(event.data));
  return port;
}

export const fetchFile = (url: URL): Promise<Response> => fetch(url);

/** The address that relative URLs of a page are resolved against. */
export const pageAddress = (): string => (typeof document === "undefined" ? self.location.href : document.baseURI);

/** Finds `hf:` names. A page loads the file for them with the first one. */
export const findOnHub =
  (kept?: Kept): OnHub =>
  async (name, { signal, cache }, work) =>
    (await import("../source/hub.ts")).onHub(name, { signal, kept: async () => (await kept?.(cache)) ?? [] }, work);

/** Opens what loads keep in this origin's storage, to be listed and deleted; null where pages have no such storage. */
export const keptOpener = (): typeof openOpfs | null =>
  "getDirectory" in (globalThis.navigator?.storage ?? {}) ? openOpfs : null;

/** Asks the browser to keep this origin's storage when space is short. */
export function persist(): void {
  const { storage } = navigator;
  void storage
    ?.persisted?.()
    .then((granted) => granted || storage.persist())
    .catch(() => {});
}

/** Milliseconds after which a frame counts as shown: browsers show none of a page that is covered, for example. */
const LONGEST_FRAME = 250;

/** Resolves with the next frame of the page, or at once where nobody sees it. */
export const frame = (): Promise<void> =>
  new Promise((resolve) => {
    if (document.hidden) return resolve();
    const late = setTimeout(resolve, LONGEST_FRAME);
    requestAnimationFrame(() => {
      clearTimeout(late);
      resolve();
    });
  });

/** Whether there are frames here: a worker has none. */
export const showsFrames = (): boolean => typeof document !== "undefined";

let channel: MessageChannel | undefined;
/** Of each message that was posted, in their order. */
const turns: (() => void)[] = [];

/** Posts a message to itself, which arrives after those that wait. Browsers delay timers to some milliseconds. */
export function turn(): Promise<void> {
  if (!channel) {
    channel = new MessageChannel();
    channel.port1.onmessage = () => turns.shift()!();
  }
  const { port2 } = channel;
  return new Promise((resolve) => {
    turns.push(resolve);
    port2.postMessage(null);
  });
}

export const cores = (): number => navigator.hardwareConcurrency || 1;

/** Roughly the device's memory; few browsers tell it. */
export function freeMemory(): number | null {
  const { deviceMemory } = navigator as { deviceMemory?: number };
  return deviceMemory ? deviceMemory * 2 ** 30 : null;
}

/** Pages are not told the processor, but storage is of one machine. */
export const processor = (): string => `${navigator.userAgent} ${cores()}`;

/** `Chrome 156`, `Firefox 140`, `Safari 26.1` */
export function runtimeName(): string {
  const agent = navigator.userAgent;
  const found = /(Firefox|Edg|Chrome)\/(\d+)/.exec(agent) ?? /(?:Version)\/([\d.]+).*(Safari)/.exec(agent);
  return found ? [found[1], found[2]].sort().reverse().join(" ") : agent;
}

/** Firefox may collect workers with a shared memory while they run, unless something refers to them (Firefox bug 1702191). */
const running = new Set<Worker>();

function owned(worker: Worker): WorkerPort {
  const port: WorkerPort = {
    onmessage: null,
    onerror: null,
    post: (message, transfer) => worker.postMessage(message, [...(transfer ?? [])]),
    terminate() {
      worker.terminate();
      running.delete(worker);
    },
  };
  running.add(worker);
  worker.onmessage = (event) => port.onmessage?.(event.data);
  worker.onmessageerror = () => port.onerror?.(new Error("a message could not be read"));
  worker.onerror = (event) => {
    event.preventDefault();
    // A script that cannot be loaded gives an event without a message.
    port.onerror?.(event.error ?? new Error(event.message || "worker.js is missing, or forbidden by a policy"));
  };
  return port;
}

/**
 * A module may not call `importScripts`; Firefox notices that only where there is something to import. An invalid address fails in
 * a classic script too, but with another error, and without a request.
 */
function isClassicScript(): boolean {
  try {
    (self as unknown as { importScripts(url: string): void }).importScripts("http://[");
    return true;
  } catch (error) {
    return !(error instanceof TypeError);
  }
}
