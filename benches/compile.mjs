/** Loops of their own beside the engine: a Rust file of this folder as a module of WebAssembly. Needs rustc and its wasm target. */
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";

/** The bytes of the module. */
export function compiled(name) {
  const folder = mkdtempSync(path.join(tmpdir(), "loops-"));
  const out = path.join(folder, "loops.wasm");
  const source = fileURLToPath(new URL(name, import.meta.url));
  const target = ["--edition", "2024", "--target", "wasm32-unknown-unknown", "--crate-type", "cdylib"];
  const how = ["-O", "-C", "panic=abort", "-C", "target-feature=+simd128,+relaxed-simd", "-C", "link-arg=--no-entry"];
  execFileSync("rustc", [...target, ...how, "-o", out, source], { stdio: "inherit" });
  const bytes = readFileSync(out);
  rmSync(folder, { recursive: true });
  return bytes;
}
