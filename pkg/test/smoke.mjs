/**
 * Whether a build of the package answers as it should: `node smoke.mjs FOLDER` loads the demo model with the `node.js` of
 * that folder, in one thread, and compares what it says. For the inner loop; tests ask for more.
 */
import assert from "node:assert/strict";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { demoModel, greedy } from "./package/support.mjs";

const { load } = await import(pathToFileURL(path.resolve(process.argv[2], "node.js")).href);
const model = await load(`${demoModel}/`, { threads: 1, flavour: "relaxed" });
const { text } = await model.generate("Once upon a time", { maxTokens: 32, temperature: 0 }).finished;
await model.close();
assert.equal(text, greedy);
console.log(`smoke run: 32 tokens as expected, by ${model.info.flavour}`);
