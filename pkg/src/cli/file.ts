import { readFile } from "node:fs/promises";
import { EngineError } from "../types/errors.ts";

/** Reads a small text file that a flag or an operand names. */
export async function readText(file: string): Promise<string> {
  return readFile(file, "utf8").catch((cause) => {
    throw new EngineError("NotFound", `${file}: ${cause.message}`, { file }, { cause });
  });
}
