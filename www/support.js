/** What keeps the engine from running in this browser, in words; null where nothing does. */

/** Before anything is tried. Whether WebAssembly has SIMD is the engine's own question; problems.js knows what it answers. */
export function lacking() {
  if (typeof WebAssembly !== "object") {
    return "This browser has no WebAssembly. Some browsers switch it off in a lockdown mode.";
  }
  if (typeof Worker !== "function") return "This browser has no workers, in which the engine lives.";
  return null;
}
