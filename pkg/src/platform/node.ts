import { createHash } from "node:crypto";
import { readdir, readFile } from "node:fs/promises";
import { availableParallelism, cpus, freemem } from "node:os";
import { fileURLToPath } from "node:url";
import { Worker } from "node:worker_threads";
import { openDirectory } from "../cache/disk.ts";
import type { WorkerPort } from "../rpc/port.ts";
import { FileSource } from "../source/file.ts";
import { type Kept, type OnHub, onHub } from "../source/hub.ts";
import { dropConnections } from "../source/request.ts";
import type { Paths } from "../source/source.ts";
import { owned } from "./node_ports.ts";
import { processorName, type System, system } from "./system.ts";

export function spawnEngine(): WorkerPort {
  const port = spawn(new URL("./node-worker.js", import.meta.url));
  keepWasmCode();
  return port;
}

let keepsWasmCode = "Deno" in globalThis || "Bun" in globalThis;

/**
 * Keeps V8 from freeing wasm code in this process: it frees compiled wrappers of imported functions while another worker begins to use
 * one, and the process ends ("Check failed: jit_page.has_value()" in WasmImportWrapperCache::Free; nodejs/node#64500). On a busy machine
 * a dozen models that are opened and closed are enough. What stays is a module's first, slower code, as long as the module lives.
 */
function keepWasmCode(): void {
  if (keepsWasmCode) return;
  keepsWasmCode = true;
  process.getBuiltinModule?.("node:v8").setFlagsFromString("--no-wasm-code-gc");
}

/** A thread's own file is a tenth of the engine's: less to parse, while the engine compiles. */
export const spawnThread = (): WorkerPort => spawn(new URL("./node-thread.js", import.meta.url));

/** The worker is one bundle, so `import.meta.url` is its own file here. */
export const spawnSibling = (): WorkerPort => spawn(new URL(import.meta.url));

/** Starts a worker without the program's own flags: some, as `--input-type` of `node --eval`, are errors for files. */
const spawn = (url: URL): WorkerPort => owned(new Worker(url, { execArgv: [] }));

/** As bytes: with the first `Response` of a worker all of fetch would be loaded. */
export const fetchFile = (url: URL): Promise<Uint8Array<ArrayBuffer>> => readFile(url);

export const toPath = (url: URL): string => fileURLToPath(url);

export const paths: Paths = {
  open: FileSource.open,
  // Node 24 ends the process for a slice that reaches further.
  longestBlob: "Deno" in globalThis || "Bun" in globalThis ? Infinity : 2 ** 32 - 1,
  async list(path) {
    const entries = await readdir(path, { withFileTypes: true }).catch(() => null);
    return entries?.filter((entry) => !entry.isDirectory()).map((entry) => entry.name) ?? null;
  },
};

export const openStore = openDirectory;

/** Finds `hf:` names on the hub that the environment names. */
export const findOnHub =
  (kept?: Kept): OnHub =>
  (name, { signal, cache }, work) => {
    const hub = { endpoint: variable("HF_ENDPOINT"), token: variable("HF_TOKEN") ?? null };
    return onHub(name, { ...hub, signal, kept: async () => (await kept?.(cache)) ?? [] }, work);
  };

/** Empty where it is not set, or where Deno's user does not let it be read. */
function variable(name: string): string | undefined {
  try {
    return process.env[name]?.trim() || undefined;
  } catch {
    return undefined;
  }
}

export const hasher = () => createHash("sha256");

export const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

export const cores = (): number => availableParallelism();

/**
 * Keeps this thread alive where a server ends a connection whose answer still waits to be read: fetch of Node 24 and older then throws
 * out of an event of its own (nodejs/undici#5360). The requests under way are tried again instead.
 */
export function surviveLostConnections(): void {
  const survive = (error: Error & { code?: string }) => {
    if (error?.code === "ERR_ASSERTION" && error.message.includes("assert(!this.paused)")) return dropConnections();
    // Any other error ends the thread as it would have.
    process.off("uncaughtException", survive);
    setImmediate(() => {
      throw error;
    });
  };
  process.on("uncaughtException", survive);
}

/** Cores that a thread each may have; null where the system does not tell. */
export const wholeCores = (): number | null => wholeCoresOf(system());

/** A thread that has a part of a core alone stands still for the rest of each period, and the others wait for it. */
export function wholeCoresOf({ physicalCores, cpuLimit }: Pick<System, "physicalCores" | "cpuLimit">): number | null {
  if (physicalCores === null) return null;
  return Math.max(1, Math.min(physicalCores, Math.floor(cpuLimit ?? physicalCores)));
}

/** Free bytes of the machine or of the container. Node reports 2^64 or 0 where no container limits the memory. */
export function freeMemory(): number {
  const most = process.constrainedMemory?.() || Infinity;
  return Math.max(0, Math.min(freemem(), most - process.memoryUsage.rss()));
}

export function runtimeName(): string {
  const { Deno } = globalThis as { Deno?: { version: { deno: string } } };
  if (Deno) return `Deno ${Deno.version.deno}`;
  const { bun, node } = process.versions;
  return bun ? `Bun ${bun}` : `Node ${node}`;
}

/** Deno asks its user before it tells the model. */
export const processor = (): string =>
  `${runtimeName()} ${process.arch} ${"Deno" in globalThis ? cores() : processorName(cpus()[0]?.model)}`;
