/** Small file systems that can be filled, where this machine lets one be mounted. */
import { execFileSync } from "node:child_process";
import { open, rm } from "node:fs/promises";
import path from "node:path";

/** @returns what takes it away again; null where nothing may be mounted */
export function mountSmall(folder, megabytes) {
  try {
    execFileSync("mount", ["-t", "tmpfs", "-o", `size=${megabytes}m,mode=0755`, "tmpfs", folder], { stdio: "pipe" });
    return () => execFileSync("umount", ["-l", folder]);
  } catch {
    return null;
  }
}

/** Leaves no byte of room. @returns what gives it back */
export async function fill(folder) {
  const file = path.join(folder, "full");
  const handle = await open(file, "w");
  try {
    for (const size of [2 ** 20, 4096]) {
      for (let full = false; !full; ) {
        full = await handle.writeFile(Buffer.alloc(size)).then(
          () => false,
          (error) => {
            if (error.code !== "ENOSPC") throw error;
            return true;
          },
        );
      }
    }
  } finally {
    await handle.close();
  }
  return () => rm(file, { force: true });
}
