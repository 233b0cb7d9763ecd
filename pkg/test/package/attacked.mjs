/** What an attacked program does, in Node, Deno and Bun: `attacked.mjs TASK JSON` prints one JSON value. */
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  lstatSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import { cache, EngineError, load } from "../../dist/node.js";

const HEAD = 4096;
const codeOf = (error) => (error instanceof EngineError ? error.code : `untyped: ${error}`);
const ended = (work) => work.then(() => "none", codeOf);
const hash = (bytes) => createHash("sha256").update(bytes).digest("hex");

async function answer(url, options) {
  const model = await load(url, { threads: 1, ...options });
  const [logits] = await model.logits([1, 5, 9, 2]);
  await model.close();
  return {
    hash: hash(new Uint8Array(logits.buffer, logits.byteOffset, logits.byteLength)),
    warnings: model.info.warnings,
  };
}

const tasks = {
  /** Damages the cache's file of the weights in many ways; what each load computed. */
  async cached({ url, directory, weights }) {
    const truth = await answer(url, { cache: directory });
    const list = await cache.list({ directory });
    const file = path.join(directory, list.find((one) => one.url.endsWith(weights)).id);
    const other = path.join(directory, list.find((one) => one.url.endsWith("tokenizer.json")).id);
    const outside = path.join(directory, "..", "outside");
    const edit = (change) => {
      const bytes = readFileSync(file);
      writeFileSync(file, change(bytes) ?? bytes);
    };
    const away = () => rmSync(file, { recursive: true, force: true });
    const attacks = {
      cut: () => truncateSync(file, 5000),
      empty: () => truncateSync(file, 0),
      "marks of zeros": () => edit((bytes) => void bytes.fill(0, HEAD, HEAD + 64)),
      "marks of others": () => edit((bytes) => void bytes.fill(7, HEAD, HEAD + 64)),
      altered: () => edit((bytes) => void bytes.fill(9, bytes.length - 3000, bytes.length - 2000)),
      "no JSON": () => edit((bytes) => void bytes.fill(123, 0, 100)),
      swapped() {
        const [one, two] = [readFileSync(file), readFileSync(other)];
        writeFileSync(file, two);
        writeFileSync(other, one);
      },
      "a link": () => {
        // It lacks a chunk: whoever follows the link would write there.
        edit((bytes) => void bytes.fill(0, HEAD, HEAD + 32));
        renameSync(file, outside);
        symlinkSync(outside, file);
      },
      "a link to itself"() {
        away();
        symlinkSync(file, file);
      },
      "a pipe"() {
        away();
        execFileSync("mkfifo", [file]);
      },
      "a folder"() {
        away();
        mkdirSync(file);
        writeFileSync(path.join(file, "mine"), "mine");
      },
    };
    const results = {};
    for (const [what, attack] of Object.entries(attacks)) {
      attack();
      const before = what === "a link" ? hash(readFileSync(outside)) : null;
      const begun = performance.now();
      const listed = (await cache.list({ directory })).every(({ size, kept }) => kept >= 0 && kept <= size);
      const found = await answer(url, { cache: directory, verify: "always" });
      results[what] = {
        right: found.hash === truth.hash,
        listed,
        kept: found.warnings.length === 0,
        ms: performance.now() - begun,
        untouched: before === null || before === hash(readFileSync(outside)),
      };
      if (!lstatSync(file, { throwIfNoEntry: false })?.isFile()) away();
      if ((await answer(url, { cache: directory })).hash !== truth.hash) results[what].right = false;
    }
    return { results, kept: (await cache.list({ directory })).every(({ complete }) => complete) };
  },

  /** What loads of several addresses end in. */
  async loads({ urls, options }) {
    const results = [];
    for (const url of urls) {
      const begun = performance.now();
      const error = await load(url, { threads: 1, cache: false, ...options }).then(
        () => null,
        (error) => error,
      );
      const { message, detail, stack, cause } = error ?? {};
      const said = `${message} ${JSON.stringify(detail)} ${stack} ${cause?.message ?? ""}`;
      results.push({ code: error && codeOf(error), said, ms: performance.now() - begun });
    }
    return results;
  },

  /** Templates and formats without an end, beside an answer that goes on. */
  async bombs({ url, templates }) {
    const codes = [];
    for (const chatTemplate of templates) {
      const model = await load(url, { threads: 1, chatTemplate });
      codes.push(await ended(model.chat([{ role: "user", content: "Hi" }], { maxTokens: 1 }).finished));
      await model.close();
    }
    const model = await load(url, { threads: 1 });
    let [gap, last] = [0, performance.now()];
    const other = model.generate("Once upon a time", { maxTokens: 5000, ignoreEos: true, onContextFull: "shift" });
    const running = (async () => {
      for await (const _ of other) {
        const now = performance.now();
        [gap, last] = [Math.max(gap, now - last), now];
      }
    })();
    const pattern = "a*b?c*".repeat(20_000);
    codes.push(await ended(model.generate("Once", { responseFormat: { type: "regex", pattern } }).finished));
    other.stop();
    await running;
    await model.close();
    return { codes, gap };
  },
};

const [task, given] = process.argv.slice(2);
console.log(JSON.stringify(await tasks[task](JSON.parse(given))));
process.exit(0);
