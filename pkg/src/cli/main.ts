import { surviveLostConnections } from "../platform/node.ts";
import { cli } from "./cli.ts";

surviveLostConnections();

// All output is written by then. Connections that are kept alive would delay the end for nothing.
process.exit(await cli(process.argv.slice(2)));
