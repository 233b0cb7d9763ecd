import { open, readFile, stat, writeFile } from "node:fs/promises";
import { EngineError } from "../types/errors.ts";

/** Reads a text that an operand or a flag names. @param option the flag, for what it says of a file that it cannot read */
export async function readText(file: string, option?: string): Promise<string> {
  const bytes = await readFile(file).catch((cause) => {
    const detail = { ...(option === undefined ? {} : { option }), file };
    throw new EngineError("NotFound", `${option ?? file}: ${cause.message}`, detail, { cause });
  });
  return utf8(bytes, file);
}

/** The text without the mark of the byte order that editors put before it. */
export function utf8(bytes: Uint8Array, file: string): string {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch (cause) {
    throw new EngineError("BadValue", `${file} is not UTF-8`, { file }, { cause });
  }
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
