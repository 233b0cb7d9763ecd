/** A session that began in a page goes on in Node, with the same bits, and the other way round. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { demoModel } from "../package/support.mjs";
import { mounts, start } from "./support.mjs";

let demo;
before(async () => {
  demo = await start();
});
after(() => demo?.stop());

const MORE = { temperature: 0.8, seed: 9, maxTokens: 12 };

/** What either side does: takes up what was saved, goes on, and saves what it had before. */
async function goOn({ library, address, saved, ids, more }) {
  const { load } = await import(library);
  const model = await load(address, { threads: 2 });
  const session = saved ? await model.restoreSession(Uint8Array.from(saved)) : model.session();
  if (ids) await session.generate(ids, { temperature: 0, maxTokens: 8 }).finished;
  const bytes = await session.save();
  const { tokens, timings } = await session.generate([7], more).finished;
  const [logits] = await model.logits(session.tokens);
  const found = { bytes: [...bytes], tokens, logits: [...logits], promptN: timings.promptN, all: [...session.tokens] };
  await model.close();
  return found;
}

test("from a page to Node and back", { timeout: 120_000 }, async () => {
  const url = await demo.server({ mounts: { ...mounts, "/model/": demoModel } });
  const page = await demo.browser.newPage();
  await page.goto(url);
  const library = `${url}ternlight/dist/index.js`;
  const inPage = (rest) => page.evaluate(goOn, { library, address: `${url}model/`, more: MORE, ...rest });
  const inNode = (rest) =>
    goOn({ library: new URL("../../dist/node.js", import.meta.url).href, address: demoModel, more: MORE, ...rest });
  const ids = Array.from({ length: 100 }, (_, i) => 300 + ((i * 7) % 997));

  const begun = await inPage({ ids });
  const taken = await inNode({ saved: begun.bytes });
  assert.deepEqual(taken, { ...begun, bytes: taken.bytes });
  assert.equal(taken.promptN, 1, "the prompt has one token");
  const back = await inPage({ saved: taken.bytes });
  assert.deepEqual(back, { ...begun, bytes: back.bytes });
});
