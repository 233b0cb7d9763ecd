/** The list of error codes, and what throws them. */

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { wrong } from "../../src/options/check.ts";
import { show } from "../../src/options/show.ts";
import { errorCodes } from "../../src/types/error_codes.ts";

const root = new URL("../../../", import.meta.url);

function textOf(folder: string, ending: string, ...without: string[]): string {
  const base = new URL(folder, root);
  const files = readdirSync(base, { recursive: true, encoding: "utf8" }).filter((name) => name.endsWith(ending));
  const kept = files.filter((name) => !without.some((part) => name.endsWith(part)));
  return kept.map((name) => readFileSync(new URL(name, base), "utf8")).join("\n");
}

const codes = Object.keys(errorCodes);
const typescript = textOf("pkg/src/", ".ts", "types/error_codes.ts");
const rust = textOf("src/", ".rs", "tests.rs") + textOf("convert/src/", ".rs", "tests.rs");
const kinds = /^kinds! \{(.*?)^\}/ms.exec(readFileSync(new URL("src/error.rs", root), "utf8"))![1]!;
const engine = [...kinds.matchAll(/^ {4}(\w+),$/gm)].map(([, name]) => name!);

test("every kind of error of the engine is in the list", () => {
  assert.ok(engine.length >= 20, engine.join());
  assert.deepEqual(
    engine.filter((code) => !codes.includes(code)),
    [],
  );
});

// That no other code is thrown in TypeScript is what the type of EngineError's constructor says.
test("every code of the list is thrown somewhere, in TypeScript or by the engine", () => {
  const thrown = (code: string) =>
    typescript.includes(`"${code}"`) || (engine.includes(code) && rust.includes(`ErrorKind::${code}`));
  assert.deepEqual(
    codes.filter((code) => !thrown(code)),
    [],
  );
});

test("codes thrown in TypeScript are those of the list", () => {
  const literals = [...typescript.matchAll(/new EngineError\(\s*"(\w+)"/g)].map(([, code]) => code!);
  assert.ok(literals.length > 50);
  assert.deepEqual(
    literals.filter((code) => !codes.includes(code)),
    [],
  );
});

test("every entry says what a code means, when it occurs and what to do", () => {
  assert.deepEqual(codes, codes.toSorted());
  for (const [code, { meaning, when, action }] of Object.entries(errorCodes)) {
    for (const sentence of [meaning, action]) assert.match(sentence, /^([A-Z]|detail\.).*\.$/s, code);
    assert.ok(when.length > 3, code);
  }
});

test("a list in place of another is told from what is no list", () => {
  const message = (value: unknown) => wrong("generate", "stop", "a list of strings", value).message;
  assert.match(message([1]), /must be a list of strings, not \[1\]$/);
  assert.match(message(new Array(2)), /not \[undefined, undefined\]$/);
  assert.match(message([]), /must be a list of strings, not one without any$/);
  assert.match(message(1), /must be a list of strings, not 1$/);
});

test("a value in a message is short, tells no secret, and has the article that its name takes", () => {
  const shown = [
    "x".repeat(99),
    [1],
    {},
    { role: "user", key: "secret" },
    new ArrayBuffer(1),
    new Map(),
    null,
    7n,
    show,
  ].map(show);
  assert.deepEqual(shown.slice(1), [
    "a list",
    "{}",
    "{ role, key }",
    "an ArrayBuffer",
    "a Map",
    "null",
    "7n",
    "a function",
  ]);
  assert.equal(shown[0], `"${"x".repeat(60)}…"`);
});
