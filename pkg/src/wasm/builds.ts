import * as singleRelaxed from "../../dist/glue/single-relaxed.js";
import * as singleSimd128 from "../../dist/glue/single-simd128.js";
import * as threadsRelaxed from "../../dist/glue/threads-relaxed.js";
import * as threadsSimd128 from "../../dist/glue/threads-simd128.js";
import type { Build } from "./load.ts";

/**
 * The rows of flavours.json as built. The addresses are right in the bundles, which lie beside the wasm files;
 * bundlers of a page find them because each is written out in exactly this form.
 */
export const builds: Readonly<Record<string, Build>> = {
  "threads-relaxed": { ...threadsRelaxed, url: () => new URL("./threads-relaxed.wasm", import.meta.url) },
  "threads-simd128": { ...threadsSimd128, url: () => new URL("./threads-simd128.wasm", import.meta.url) },
  "single-relaxed": { ...singleRelaxed, url: () => new URL("./single-relaxed.wasm", import.meta.url) },
  "single-simd128": { ...singleSimd128, url: () => new URL("./single-simd128.wasm", import.meta.url) },
};
