/** Writing a model's file, which gets its name when it is whole. */

import { stat } from "node:fs/promises";
import { EngineError } from "../types/errors.ts";
import { NewFile } from "./new_file.ts";

export async function writeAt(file: NewFile, bytes: Uint8Array, position: number): Promise<void> {
  await file.write(bytes, position).catch(unwritable(file.target));
}

const unwritable = (file: string) => (cause: Error) => {
  throw new EngineError("Unwritable", `${file} cannot be written: ${cause.message}`, { file }, { cause });
};

export async function checkTarget(out: string, force: boolean): Promise<void> {
  const found = await stat(out).catch(() => null);
  if (found?.isDirectory()) throw new EngineError("InvalidArgument", `${out} is a folder`, { file: out });
  if (found && !found.isFile()) throw new EngineError("InvalidArgument", `${out} is no regular file`, { file: out });
  if (found && !force) throw new EngineError("Exists", `${out} exists; --force replaces it`, { file: out });
}

/** Only a complete file gets the name, and after a failure nothing stays. */
export async function writeWhole(
  out: string,
  force: boolean,
  size: number,
  work: (file: NewFile) => Promise<void>,
): Promise<void> {
  let file: NewFile | null = null;
  // A second signal ends the program without waiting for us. The listener is there before the file is, which is made in one step.
  const clear = () => file?.discard();
  process.once("exit", clear);
  try {
    file = create(out);
    await file.truncate(size).catch(unwritable(out));
    await work(file);
    await file.flush().catch(unwritable(out));
    await checkTarget(out, force);
    await file.finish({ private: false }).catch(unwritable(out));
  } catch (error) {
    clear();
    throw error;
  } finally {
    process.off("exit", clear);
  }
}

function create(out: string): NewFile {
  try {
    return NewFile.create(out);
  } catch (cause) {
    return unwritable(out)(cause as Error);
  }
}
