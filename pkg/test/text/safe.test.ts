import assert from "node:assert/strict";
import { test } from "node:test";
import { safe } from "../../src/text/safe.ts";

const rows: [string, string][] = [
  ["", ""],
  ["plain text, ünïcödé, 日本語, می‌خواهم", "plain text, ünïcödé, 日本語, می‌خواهم"],
  ["soft\u00ADhy\u00ADphen", "softhyphen"],
  ["zero\u200Bwidth\uFEFF \u2060joined", "zerowidth joined"],
  ["a  b\t\tc\u00A0\u3000d", "a b c d"],
  ["one \r\n two\n\n\n\n\nthree", "one\ntwo\n\nthree"],
  ["❤\uFE0F", "❤"],
  ["so 😂😂😂 funny 😂 😭", "so 😂 funny 😂"],
  ["👩\u200D👩\u200D👧 went", "👩 went"],
  ["👍🏽👍🏽", "👍🏽"],
  ["🇰🇷🇰🇷🇫🇷", "🇰🇷"],
  ["葛\u{E0100}", "葛"],
];

test("safe drops what is not seen and what is said again", () => {
  for (const [text, expected] of rows) {
    assert.equal(safe(text), expected);
    assert.equal(safe(expected), expected, "twice is once");
  }
});
