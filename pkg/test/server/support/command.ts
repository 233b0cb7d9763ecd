/** The command `serve` as a process, on the runtimes that it is for. */

import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import type { TestContext } from "node:test";
import { fileURLToPath } from "node:url";
import { type Body, body } from "./app.ts";

const path = (name: string) => fileURLToPath(new URL(`../../../${name}`, import.meta.url));
const host = (name: string) => path(`test/hosts/node_modules/${name}`);

/** How each runtime starts a program. */
export const runtimes: Readonly<Record<string, string[]>> = {
  "Node 20": [host("node20/bin/node")],
  "Node 24": [host("node24/bin/node")],
  Deno: [host("deno/deno"), "run", "-A"],
  Bun: [host("bun/bin/bun.exe")],
};

export interface Server {
  url: string;
  child: ChildProcess;
  /** What it has written by now. */
  out(): string;
  err(): string;
  /** Resolves with its exit status. */
  ended: Promise<number | null>;
}

export interface Start {
  runtime?: string;
  env?: Record<string, string>;
  /** Whether --port 0 is added where no place is given. @default true */
  free?: boolean;
}

/** Starts a server on a free port; it ends with the test. */
export async function serve(context: TestContext, args: readonly string[] = [], start: Start = {}): Promise<Server> {
  const { runtime = "Node 24", env = {}, free = true } = start;
  const [program, ...flags] = runtimes[runtime]!;
  const port = !free || args.includes("--unix") || args.includes("--port") ? [] : ["--port", "0"];
  const all = [...flags, path("dist/cli.js"), "serve", "--threads", "1", "--json", ...port, ...args];
  const child = spawn(program!, all, { stdio: ["ignore", "pipe", "pipe"], env: { ...process.env, ...env } });
  const written = { out: "", err: "" };
  child.stdout!.on("data", (text) => (written.out += text));
  child.stderr!.on("data", (text) => (written.err += text));
  const ended = once(child, "exit").then(([code]) => code as number | null);
  context.after(async () => {
    child.kill("SIGKILL");
    await ended;
  });
  const ready = new Promise<void>((resolve) => {
    child.stdout!.on("data", () => written.out.includes("\n") && resolve());
  });
  const over = await Promise.race([ready, ended]);
  if (over !== undefined) throw new Error(`it ended with ${over}: ${written.err}`);
  const { url } = JSON.parse(written.out.split("\n")[0]!) as { url?: string };
  if (url === undefined) throw new Error(`it ended with ${await ended}: ${written.err}`);
  return { url, child, out: () => written.out, err: () => written.err, ended };
}

/** What the only model of a server does. */
export async function status({ url }: Server): Promise<Body> {
  const { models } = await body(fetch(`${url}/status`));
  return models[0];
}

/** Nothing runs, waits or holds memory any more. */
export async function idle(server: Server, ms?: number): Promise<void> {
  await until(async () => {
    const { running, waiting, paused, usedTokens } = await status(server);
    return running + waiting + paused + usedTokens === 0;
  }, ms);
}

export async function until(holds: () => boolean | Promise<boolean>, ms = 10_000): Promise<void> {
  for (const end = Date.now() + ms; !(await holds()); ) {
    assert.ok(Date.now() < end, "it does not come to be");
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}
