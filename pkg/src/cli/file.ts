import { open, readFile, stat, writeFile } from "node:fs/promises";
import { EngineError } from "../types/errors.ts";

/** Reads a small text file that a flag or an operand names. */
export async function readText(file: string): Promise<string> {
  return readFile(file, "utf8").catch((cause) => {
    throw new EngineError("NotFound", `${file}: ${cause.message}`, { file }, { cause });
  });
}

/** How long the beginning is that files of a kind share. */
const BEGINNING = 8;

/**
 * Writes a small text into the file that a flag names. It may replace an earlier one of its kind, by default one that begins alike, and
 * nothing else.
 */
export async function writeText(
  option: string,
  file: string,
  text: string,
  replaces: () => Promise<boolean> = async () => (await beginning(file)) === text.slice(0, BEGINNING),
): Promise<void> {
  const found = await stat(file).catch(() => null);
  if (found?.isFile() && found.size > 0 && !(await replaces().catch(() => false)))
    throw new EngineError("Exists", `${option}: ${file} is no such file of an earlier run: give another name`, {
      option,
      file,
    });
  await writeFile(file, text).catch((cause) => {
    throw unwritable(option, file, cause);
  });
}

async function beginning(file: string): Promise<string> {
  const handle = await open(file);
  try {
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(BEGINNING), 0, BEGINNING, 0);
    return buffer.toString("latin1", 0, bytesRead);
  } finally {
    await handle.close();
  }
}

/** What a flag names cannot be written. */
export const unwritable = (option: string, file: string, cause: unknown): EngineError =>
  new EngineError("Unwritable", `${option}: ${(cause as Error).message}`, { option, file }, { cause });
