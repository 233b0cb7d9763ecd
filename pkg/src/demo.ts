import type { URL as Address } from "./types/web.ts";

/**
 * The model that ships with the package, file by file, for `load`: 5.8 million parameters, trained on fairy tales. A page
 * that does not import this module does not ship the files: bundlers follow each of these addresses.
 */
const demo: Record<string, Address> = {
  "config.json": new URL("../models/ternlight-demo/config.json", import.meta.url),
  "generation_config.json": new URL("../models/ternlight-demo/generation_config.json", import.meta.url),
  "model.safetensors": new URL("../models/ternlight-demo/model.safetensors", import.meta.url),
  "tokenizer.json": new URL("../models/ternlight-demo/tokenizer.json", import.meta.url),
  "tokenizer_config.json": new URL("../models/ternlight-demo/tokenizer_config.json", import.meta.url),
};

export default demo;
