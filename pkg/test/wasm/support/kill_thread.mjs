/** Preloaded in every thread of a process: a pool worker dies when it is ready, as if the system had killed it. */

import { parentPort } from "node:worker_threads";

if (parentPort) {
  const post = parentPort.postMessage.bind(parentPort);
  parentPort.postMessage = (message, transfer) => {
    post(message, transfer);
    if (message === "ready") process.exit(0);
  };
}
