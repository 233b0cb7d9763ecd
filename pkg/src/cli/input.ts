/** Standard input, where `-` stands for it or a prompt comes through a pipe. */

import { type Args, STANDARD } from "./args.ts";
import { readText, utf8 } from "./file.ts";

/** The text of the flag -p, or what comes on standard input. @param missing is thrown where neither gives one */
export async function givenText(args: Args, missing: Error, signal: AbortSignal): Promise<string> {
  const given = args.text("prompt") ?? args.operands[1];
  if (given !== undefined && given !== STANDARD) return given;
  if (given === undefined && process.stdin.isTTY) throw missing;
  // Programs end what they print with a line feed, which is no part of a prompt.
  const text = (await readInput(signal)).replace(/\r?\n$/, "");
  if (text === "") throw missing;
  return text;
}

/** The text of a file or of standard input. */
export const textOf = (file: string, signal: AbortSignal): Promise<string> =>
  file === STANDARD ? readInput(signal) : readText(file);

/** All of standard input. */
async function readInput(signal: AbortSignal): Promise<string> {
  const { stdin } = process;
  const end = () => stdin.destroy(signal.reason);
  signal.addEventListener("abort", end);
  try {
    const chunks: Buffer[] = [];
    for await (const chunk of stdin) chunks.push(Buffer.from(chunk));
    signal.throwIfAborted();
    return utf8(Buffer.concat(chunks), "standard input");
  } finally {
    signal.removeEventListener("abort", end);
  }
}
