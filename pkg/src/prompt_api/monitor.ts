/** `downloadprogress` of a creation: from 0 to 1, never back. */

import type { Progress } from "../types/index.ts";
import type { LanguageModelCreateOptions } from "./idl.ts";

export class CreateMonitor extends EventTarget {
  #handler: ((event: Event) => void) | null = null;

  get ondownloadprogress(): ((event: Event) => void) | null {
    return this.#handler;
  }

  set ondownloadprogress(handler: ((event: Event) => void) | null) {
    if (this.#handler) this.removeEventListener("downloadprogress", this.#handler);
    this.#handler = typeof handler === "function" ? handler : null;
    if (this.#handler) this.addEventListener("downloadprogress", this.#handler);
  }
}

/** @returns what tells the monitor how far a load is; `end` where the model is there */
export function monitored(monitor: LanguageModelCreateOptions["monitor"]): {
  tell(progress: Progress): void;
  end(): void;
} {
  if (!monitor) return { tell() {}, end() {} };
  const target = new CreateMonitor();
  monitor(target);
  let told = -1;
  const fire = (loaded: number) => {
    if (loaded <= told) return;
    told = loaded;
    target.dispatchEvent(progressEvent(loaded));
  };
  return {
    tell({ loaded, total }) {
      fire(0);
      // The last one is told when the model can answer.
      if (total > 0) fire(Math.min(loaded / total, 1 - Number.EPSILON));
    },
    end() {
      fire(0);
      fire(1);
    },
  };
}

function progressEvent(loaded: number): Event {
  const fields = { loaded, total: 1, lengthComputable: true };
  if (typeof ProgressEvent === "function") return new ProgressEvent("downloadprogress", fields);
  return Object.assign(new Event("downloadprogress"), fields);
}
