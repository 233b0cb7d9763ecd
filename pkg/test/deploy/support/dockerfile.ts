/** A Dockerfile without a builder: its instructions, carried out in folders that stand for its stages, by chroot. */

import { execFile } from "node:child_process";
import { cp, mkdir, readdir } from "node:fs/promises";
import path from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);

interface Step {
  name: string;
  rest: string;
}

/** What an image says of the containers that are made of it. */
export interface Image {
  root: string;
  env: Record<string, string>;
  user: string;
  workdir: string;
  entrypoint: string[];
  healthcheck: string[];
  stopSignal: string;
}

/** Lines that end in a backslash go on in the next; comments are no instructions. */
export function stepsOf(text: string): Step[] {
  const lines = text.split("\n").filter((line) => !/^\s*(#|$)/.test(line));
  return Array.from(
    lines
      .join("\n")
      .replace(/\\\n\s*/g, "")
      .matchAll(/^([A-Z]+) +(.*)$/gm),
    ([, name, rest]) => ({
      name: name!,
      rest: rest!,
    }),
  );
}

export interface Build {
  /** Where COPY takes files from. */
  context: string;
  args: Record<string, string>;
  /** A new folder with what the image after FROM has. */
  from(image: string): Promise<string>;
}

/** Carries the steps out; answers with the last stage. */
export async function build(steps: readonly Step[], { context, args, from }: Build): Promise<Image> {
  const stages: Record<string, string> = {};
  let image: Image | undefined;
  let known: Record<string, string> = {};
  for (const { name, rest } of steps) {
    if (name === "FROM") {
      const [base, , stage] = rest.split(/ +/) as [string, string?, string?];
      const root = await from(base);
      if (stage) stages[stage] = root;
      image = { root, env: {}, user: "root", workdir: "/", entrypoint: [], healthcheck: [], stopSignal: "SIGTERM" };
      known = {};
      continue;
    }
    if (!image) throw new Error(`${name} before FROM`);
    const filled = rest.replace(/\$\{(\w+)\}/g, (_, key) => known[key] ?? "");
    if (name === "ENV") Object.assign(image.env, Object.fromEntries(pairs(rest)));
    else if (name === "ARG") for (const [key, value] of pairs(rest)) known[key] = args[key] ?? value;
    else if (name === "USER") image.user = rest;
    else if (name === "WORKDIR") {
      image.workdir = rest;
      await mkdir(image.root + rest, { recursive: true });
    } else if (name === "RUN") await inside(image, ["/bin/sh", "-c", rest]);
    else if (name === "COPY") await copy(filled, image.root, context, stages);
    else if (name === "ENTRYPOINT") image.entrypoint = JSON.parse(rest);
    else if (name === "HEALTHCHECK") image.healthcheck = JSON.parse(/ CMD (\[.*\])$/.exec(rest)![1]!);
    else if (name === "STOPSIGNAL") image.stopSignal = rest;
    else if (name !== "EXPOSE") throw new Error(`${name} is not known here`);
  }
  return image!;
}

const pairs = (text: string) => Array.from(text.matchAll(/(\w+)=(\S+)/g), ([, key, value]) => [key!, value!] as const);

/** Names with a star in them, and none at all, are allowed. */
async function copy(rest: string, root: string, context: string, stages: Record<string, string>): Promise<void> {
  const [flag, stage] = /^--from=(\w+) /.exec(rest) ?? [];
  const [source, target] = rest.slice(flag?.length ?? 0).split(/ +/) as [string, string];
  if (stage) return cp(stages[stage] + source, root + target, { recursive: true, verbatimSymlinks: true });
  const pattern = new RegExp(`^${source.replace(/[.+?()[\]{}|^$\\]/g, "\\$&").replaceAll("*", ".*")}$`);
  const names = (await readdir(context)).filter((name) => pattern.test(name));
  if (names.length === 0) throw new Error(`COPY ${source}: the context has no such file`);
  for (const name of names) await cp(path.join(context, name), root + path.join(target, name));
}

/** A command as a container of an image runs it, for `spawn`: with the system's /proc and /dev, which vanish with it. */
export function command(image: Image, args: readonly string[], env: Record<string, string> = {}): string[] {
  const settings = Object.entries({ PATH: "/usr/local/bin:/usr/bin:/bin", HOME: "/tmp", ...image.env, ...env });
  const enter = 'for name in proc dev; do mount --rbind /$name "$0/$name"; done; exec chroot "$@"';
  return [
    ...["unshare", "--mount", "sh", "-c", enter, image.root],
    ...[`--userspec=${image.user}`, image.root, "env", "-i", `--chdir=${image.workdir}`],
    ...settings.map(([key, value]) => `${key}=${value}`),
    ...args,
  ];
}

export async function inside(image: Image, args: readonly string[], env?: Record<string, string>): Promise<string> {
  const [program, ...more] = command(image, args, env);
  return (await run(program!, more)).stdout;
}
