/** The built command line, run as its users run it. */

import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import type { ErrorDetail } from "../../../src/types/errors.ts";

export const DEMO = "ternlight-demo";
export const path = (inRepository: string) => fileURLToPath(new URL(`../../../../${inRepository}`, import.meta.url));

const script = path("pkg/dist/cli.js");

export interface Ran {
  status: number | null;
  signal: NodeJS.Signals | null;
  stdout: string;
  stderr: string;
}

/** What runs the script: a program and the arguments before it. */
export type Host = readonly [string, ...string[]];
const THIS: Host = [process.execPath];

/** Starts it; `ended` settles with all that it said. */
export function start(args: readonly string[], host: Host = THIS): { child: ChildProcess; ended: Promise<Ran> } {
  const [program, ...before] = host;
  const child = spawn(program, [...before, script, ...args], { stdio: ["ignore", "pipe", "pipe"] });
  let [stdout, stderr] = ["", ""];
  child.stdout.setEncoding("utf8").on("data", (text) => (stdout += text));
  child.stderr.setEncoding("utf8").on("data", (text) => (stderr += text));
  const ended = new Promise<Ran>((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (status, signal) => resolve({ status, signal, stdout, stderr }));
  });
  return { child, ended };
}

export const ternlight = (...args: string[]): Promise<Ran> => start(args).ended;

/** What must end well, without a word on stderr that is not expected. */
export async function done(...args: string[]): Promise<Ran> {
  const ran = await ternlight(...args);
  assert.equal(ran.status, 0, `ternlight ${args.join(" ")} ended with ${ran.signal ?? ran.status}\n${ran.stderr}`);
  return ran;
}

/** Its one JSON object. */
// biome-ignore lint/suspicious/noExplicitAny: its shape is what the tests look at
export async function json(...args: string[]): Promise<any> {
  return JSON.parse((await done(...args, "--json")).stdout);
}

interface Failure {
  code: string;
  message: string;
  detail: ErrorDetail;
}

/** What must fail with this status: the same error on stdout as JSON and on stderr in words, and no stack trace. */
export async function failure(status: number, ...args: string[]): Promise<Failure> {
  const { stdout, stderr, ...ran } = await ternlight(...args, "--json");
  assert.equal(ran.status, status, `ternlight ${args.join(" ")}\n${stdout}${stderr}`);
  const { error, ...rest } = JSON.parse(stdout);
  assert.deepEqual(rest, {});
  assert.deepEqual(Object.keys(error), ["code", "message", "detail"]);
  assert.ok(stderr.includes(error.message), stderr);
  assert.doesNotMatch(stderr, /^\s+at /m, "a stack trace");
  return error;
}
