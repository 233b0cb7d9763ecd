import { cache } from "../node.ts";
import { redacted } from "../source/address.ts";
import type { CachedFile } from "../types/index.ts";
import type { Args } from "./args.ts";
import { bytes, plural } from "./format.ts";
import { UsageError } from "./syntax.ts";
import type { Command } from "./usage.ts";

export const cacheList: Command = {
  name: "cache list",
  async run(args, terminal) {
    const files = await cache.list(place(args));
    if (terminal.json) return terminal.printJson({ files });
    for (const file of files) await terminal.print(`${amount(file).padStart(22)}  ${file.url || file.id}\n`);
    const kept = files.reduce((sum, file) => sum + file.kept, 0);
    await terminal.note(`${plural(files.length, "file")}, ${bytes(kept)}`);
  },
};

export const cacheDelete: Command = {
  name: "cache delete",
  async run(args, terminal) {
    const [url] = args.operands;
    if ((url === undefined) !== args.has("all")) throw new UsageError("give either a URL or --all");
    if (url !== undefined && !URL.canParse(url)) throw new UsageError(`${JSON.stringify(redacted(url))} is not a URL`);
    const deleted = await cache.delete(url, place(args));
    if (terminal.json) return terminal.printJson({ deleted });
    await terminal.note(`${plural(deleted, "file")} deleted`);
  },
};

const place = (args: Args) => ({ directory: args.text("cache") });

const amount = ({ kept, size, complete }: CachedFile) => (complete ? bytes(size) : `${bytes(kept)} of ${bytes(size)}`);
