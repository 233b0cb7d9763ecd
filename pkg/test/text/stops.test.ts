import assert from "node:assert/strict";
import { test } from "node:test";
import { MAX_STOP_LENGTH, MAX_STOPS } from "../../src/text/limits.ts";
import { StopMatcher } from "../../src/text/stops.ts";
import { failure } from "./support/check.ts";
import { random } from "./support/random.ts";

function run(stops: readonly string[], pieces: readonly string[]) {
  const matcher = new StopMatcher(stops);
  let shown = "";
  for (const piece of pieces) shown += matcher.push(piece);
  return { shown: shown + matcher.flush(), match: matcher.match };
}

test("for random texts and splits: what a search of the whole text finds", () => {
  const below = random(3);
  const letters = ["a", "b", "\n", "\u{1f600}"];
  const word = (length: number) => Array.from({ length }, () => letters[below(letters.length)]).join("");
  let matched = 0;
  for (let i = 0; i < 20_000; i++) {
    const text = word(below(24));
    const stops = Array.from({ length: 1 + below(3) }, () => word(1 + below(4)));
    const pieces: string[] = [];
    const chars = [...text];
    while (chars.length > 0) pieces.push(chars.splice(0, 1 + below(5)).join(""));

    const found = stops.map((stop) => text.indexOf(stop)).filter((at) => at >= 0);
    const position = found.length === 0 ? -1 : Math.min(...found);
    const { shown, match } = run(stops, pieces);
    const where = JSON.stringify({ text, stops, pieces });
    assert.equal(shown, position < 0 ? text : text.slice(0, position), where);
    assert.equal(match?.position ?? -1, position, where);
    if (match) {
      matched++;
      assert.ok(stops.includes(match.stop) && text.startsWith(match.stop, match.position), where);
    }
  }
  assert.ok(matched > 5_000);
});

test("only what could still become a stop text is held back", () => {
  const matcher = new StopMatcher(["</s>", "User:"]);
  assert.equal(matcher.push("a < b"), "a < b");
  assert.equal(matcher.push(" <"), " ");
  assert.equal(matcher.push("/"), "");
  assert.equal(matcher.push("p>Us"), "</p>");
  assert.equal(matcher.push("e"), "");
  assert.equal(matcher.flush(), "Use");
  assert.equal(matcher.match, null);
});

test("a stop inside of an earlier candidate waits for it; the text shown is the same either way", () => {
  assert.deepEqual(run(["bc", "abcd"], ["abc", "d"]), { shown: "", match: { stop: "abcd", position: 0 } });
  assert.deepEqual(run(["bc", "abcd"], ["abc", "e"]), { shown: "a", match: { stop: "bc", position: 1 } });
  assert.deepEqual(run(["bc", "abcd"], ["abc"]), { shown: "a", match: { stop: "bc", position: 1 } });
});

test("after a match nothing more is shown, and no stops hold nothing", () => {
  const matcher = new StopMatcher(["x"]);
  assert.equal(matcher.push("axb"), "a");
  assert.equal(matcher.push("c"), "");
  assert.equal(matcher.flush(), "");
  assert.deepEqual(matcher.match, { stop: "x", position: 1 });
  assert.deepEqual(run([], ["ab", "c"]), { shown: "abc", match: null });
});

test("empty, overlong and too many stops are refused", () => {
  const many = Array.from({ length: MAX_STOPS + 1 }, (_, i) => String(i));
  for (const stops of [[""], ["a".repeat(MAX_STOP_LENGTH + 1)], many]) {
    const error = failure(() => new StopMatcher(stops));
    assert.deepEqual([error.code, error.detail.option], ["InvalidArgument", "stop"]);
  }
});
