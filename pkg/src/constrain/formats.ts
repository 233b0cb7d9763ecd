/**
 * What only answers with a format need. The bundles for pages have it in a file of its own, which a page loads with the first format, as
 * does the worker that compiles it.
 */

export { compileFor } from "./compiler.ts";
export { Constrainer } from "./constraint.ts";
