/** What keeps the engine from running in this browser, in words; null where nothing does. */

/** Before anything is tried. Whether WebAssembly has SIMD is the engine's own question. */
export function lacking() {
  if (typeof WebAssembly !== "object") {
    return "This browser has no WebAssembly. Some browsers switch it off in a lockdown mode.";
  }
  if (typeof Worker !== "function") return "This browser has no workers, in which the engine lives.";
  return null;
}

/** After the engine could not start. */
export async function lackingFor(error) {
  if (error.code === "UnsupportedRuntime") {
    return "This browser’s WebAssembly has no SIMD (simd128), which the engine computes with.";
  }
  if (error.code === "WorkerFailed" && !(await workersRun())) {
    return "Workers are blocked here, by a setting, an extension or a content security policy. The engine lives in one.";
  }
  return null;
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
