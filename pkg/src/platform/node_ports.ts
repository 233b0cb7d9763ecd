/** Workers of Node, Deno and Bun as ports. */

import { type Transferable as NodeTransferable, parentPort, type Worker } from "node:worker_threads";
import type { Port, WorkerPort } from "../rpc/port.ts";

export function ownPort(): Port {
  if (!parentPort) throw new Error("not inside a worker");
  const parent = parentPort;
  const port: Port = { onmessage: null, post: (message, transfer) => parent.postMessage(message, list(transfer)) };
  // To make an event of the first message, Node 24 loads all of fetch. A listener of `on` takes no event, but for those Deno
  // goes through every byte of a message.
  if ("Deno" in globalThis) {
    (parent as unknown as EventTarget).addEventListener("message", (event) => {
      port.onmessage?.((event as MessageEvent).data);
    });
  } else parent.on("message", (message) => port.onmessage?.(message));
  return port;
}

/** A worker as a port. */
export function owned(worker: Worker): WorkerPort {
  let ending = false;
  const port: WorkerPort = {
    onmessage: null,
    onerror: null,
    post: (message, transfer) => worker.postMessage(message, list(transfer)),
    terminate() {
      ending = true;
      return worker.terminate();
    },
    hold: (awaited) => (awaited ? worker.ref() : worker.unref()),
  };
  worker.on("message", (message) => port.onmessage?.(message));
  worker.on("messageerror", (error) => port.onerror?.(error));
  worker.on("error", (error) => port.onerror?.(error as Error));
  worker.on("exit", (code) => {
    if (!ending) port.onerror?.(new Error(`the worker ended by itself with code ${code}`));
  });
  return port;
}

const list = (transfer?: readonly Transferable[]) => [...(transfer ?? [])] as unknown as NodeTransferable[];
