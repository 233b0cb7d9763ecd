import { readFile, writeFile } from "node:fs/promises";
import { EngineError } from "../types/errors.ts";

/** Reads a small text file that a flag or an operand names. */
export async function readText(file: string): Promise<string> {
  return readFile(file, "utf8").catch((cause) => {
    throw new EngineError("NotFound", `${file}: ${cause.message}`, { file }, { cause });
  });
}

/** Writes a small text into the file that a flag names. */
export async function writeText(option: string, file: string, text: string): Promise<void> {
  await writeFile(file, text).catch((cause) => {
    throw unwritable(option, file, cause);
  });
}

/** What a flag names cannot be written. */
export const unwritable = (option: string, file: string, cause: unknown): EngineError =>
  new EngineError("Unwritable", `${option}: ${(cause as Error).message}`, { option, file }, { cause });
