import { cli } from "./cli.ts";

// All output is written by then. Connections that are kept alive would delay the end for nothing.
process.exit(await cli(process.argv.slice(2)));
