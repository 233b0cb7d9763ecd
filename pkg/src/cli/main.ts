import { setFlagsFromString } from "node:v8";
import { surviveLostConnections } from "../platform/node.ts";
import { cli } from "./cli.ts";

// V8 frees compiled wrappers of imported functions while another worker begins to use one, and the process ends by a signal, once in
// several hundred models that it opens and closes (nodejs/node#64500). Bun has no V8, and in Deno it was not seen.
if (!("Deno" in globalThis || "Bun" in globalThis)) setFlagsFromString("--no-wasm-code-gc");
surviveLostConnections();

// All output is written by then. Connections that are kept alive would delay the end for nothing.
process.exit(await cli(process.argv.slice(2)));
