/** How a page's worker reads its messages between two pieces of work. */

import { execFile } from "node:child_process";
import { test } from "node:test";
import { promisify } from "node:util";

const browser = new URL("../../src/platform/browser.ts", import.meta.url).href;

test("turns that are awaited side by side all come", { timeout: 60_000 }, async () => {
  // A channel that is open keeps a process: this one ends by itself only once all have come.
  const program = `import { turn } from ${JSON.stringify(browser)};
    await Promise.all([turn(), turn(), turn()]);
    process.exit(0);`;
  await promisify(execFile)(process.execPath, ["--input-type=module", "--eval", program], { timeout: 50_000 });
});
