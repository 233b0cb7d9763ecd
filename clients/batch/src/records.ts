/** Lines and answers as stores have them: a record a line. */

import type { Answered, Line } from "ternlight/batch";

/** What could not be read has a mark before it that no JSON begins with. */
export function toText({ text, fault }: Line): string {
  const plain = fault === undefined && !text.startsWith("!");
  return `${plain ? text : `!${JSON.stringify({ text, ...(fault ? { fault } : {}) })}`}\n`;
}

const recordsOf = (bytes: Buffer): string[] => bytes.toString("utf8").split("\n").slice(0, -1);

/** @param first the index of the first line */
export const linesOf = (bytes: Buffer, first: number): Line[] =>
  recordsOf(bytes).map((text, i) =>
    text.startsWith("!") ? { index: first + i, ...JSON.parse(text.slice(1)) } : { index: first + i, text },
  );

export const answersText = (answers: readonly Answered[]): string =>
  answers.map(({ failed, text }) => `${failed ? 1 : 0}${text}\n`).join("");

export const answersOf = (bytes: Buffer): Answered[] =>
  recordsOf(bytes).map((text) => ({ failed: text[0] === "1", text: text.slice(1) }));
