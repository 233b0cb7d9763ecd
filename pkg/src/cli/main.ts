import { cli } from "./cli.ts";

// Everything is written by then; what still waits (a connection kept alive) needs nobody to wait for it.
process.exit(await cli(process.argv.slice(2)));
