/**
 * A page under attack: files of its storage that others have written, a service worker that lies, templates and formats without an
 * end. Each load ends in the right bytes or in an error of ours, and the tab goes on.
 */

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { after, before, test } from "node:test";
import { launch } from "../package/support.mjs";
import { files, modelServer, WEIGHTS } from "./support/stuck.mjs";
import { listIn, loadIn, profileOf } from "./support/tabs.mjs";

const HEAD = 4096;
const CHUNK = 512 << 10;
const CHUNKS = Math.ceil(files[WEIGHTS].length / CHUNK);
const MARKS = 32 * CHUNKS;
const sha256 = (bytes) => createHash("sha256").update(bytes).digest("hex");
const integrity = Object.fromEntries(Object.entries(files).map(([name, bytes]) => [name, sha256(bytes)]));

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser?.close());

/** Does something to the storage of the page's origin, by a function of the folder that runs in the page. */
const inStorage = (tab, work, given) =>
  tab.evaluate(
    async ({ work, given }) => {
      const root = await navigator.storage.getDirectory();
      const folder = await root.getDirectoryHandle("ternlight");
      const read = async (name) =>
        new Uint8Array(await (await (await folder.getFileHandle(name)).getFile()).arrayBuffer());
      const write = async (name, bytes) => {
        const file = await (await folder.getFileHandle(name, { create: true })).createWritable();
        await file.write(bytes);
        await file.close();
      };
      return new Function("tools", `return (${work})(tools)`)({ root, folder, read, write, ...given });
    },
    { work: work.toString(), given },
  );

const idOf = async (tab, file) => (await listIn(tab)).find((one) => one.url.endsWith(file)).id;

/** What is done to the file that keeps the weights. */
const DAMAGE = {
  "cut off in its head": (bytes) => bytes.subarray(0, 1000),
  "cut off among its marks": (bytes) => bytes.subarray(0, 4096 + 40),
  "cut off in its data": (bytes) => bytes.subarray(0, bytes.length >> 1),
  empty: () => new Uint8Array(),
  "marks of zeros": (bytes, { HEAD, MARKS }) => bytes.fill(0, HEAD, HEAD + MARKS),
  "marks of others": (bytes, { HEAD, MARKS }) => bytes.fill(7, HEAD, HEAD + MARKS),
  "data that was altered": (bytes, { HEAD, MARKS }) => bytes.fill(9, HEAD + MARKS + 100_000, HEAD + MARKS + 100_200),
  "a head that is no JSON": (bytes) => bytes.fill(123, 0, 200),
  "the hash of another file": (bytes, { HEAD }) => bytes.fill(5, HEAD - 32, HEAD),
  "a size of a terabyte": (bytes) => {
    const text = new TextDecoder().decode(bytes.subarray(0, 2000)).replace(/"size":\d+/, '"size":1099511627776');
    bytes.set(new TextEncoder().encode(text.slice(0, 2000)));
    return bytes;
  },
};

test("whatever the origin's storage holds, a load gives the right bits", { timeout: 240_000 }, async (context) => {
  const { url } = await modelServer(context);
  const tab = await (await profileOf(context, browser))();
  const { logits } = await loadIn(tab, url, { integrity });
  const [id, other] = [await idOf(tab, WEIGHTS), await idOf(tab, "tokenizer.json")];
  const spoil = ({ read, write, id, damage, HEAD, MARKS }) =>
    read(id).then((bytes) =>
      write(id, new Function("bytes", "known", `return (${damage})(bytes, known)`)(bytes, { HEAD, MARKS })),
    );
  for (const [what, damage] of Object.entries(DAMAGE)) {
    await inStorage(tab, spoil, { id, damage: damage.toString(), HEAD, MARKS });
    // Its list can be looked at in between.
    for (const { size, kept } of await listIn(tab)) assert.ok(kept >= 0 && kept <= size, what);
    assert.deepEqual((await loadIn(tab, url, { verify: "always", integrity })).logits, logits, what);
    const again = await loadIn(tab, url);
    assert.deepEqual([again.logits, again.warnings], [logits, []], `${what}, mended`);
    assert.ok(
      (await listIn(tab)).every(({ complete }) => complete),
      what,
    );
  }
  // Two files of the cache in each other's place.
  await inStorage(
    tab,
    async ({ read, write, id, other }) => {
      const [one, two] = [await read(id), await read(other)];
      await write(id, two);
      await write(other, one);
    },
    { id, other },
  );
  assert.deepEqual((await loadIn(tab, url)).logits, logits);
  assert.deepEqual(await loadIn(tab, url), { logits, warnings: [] });
});

test("what is none of the cache's keeps nobody from loading, listing and deleting", {
  timeout: 120_000,
}, async (context) => {
  const { url } = await modelServer(context);
  const tab = await (await profileOf(context, browser))();
  const { logits } = await loadIn(tab, url);
  const id = await idOf(tab, WEIGHTS);
  await inStorage(
    tab,
    async ({ folder, write, id }) => {
      for (const name of [
        "notes.txt",
        "..x",
        "%2e%2e",
        "\u202egnp.exe",
        "😀",
        "a".repeat(200),
        `${"0".repeat(24)}-${"f".repeat(16)}`,
      ])
        await write(name, "mine");
      // A folder where a file should be, with something in it.
      await folder.removeEntry(id);
      await (await folder.getDirectoryHandle(id, { create: true })).getFileHandle("mine", { create: true });
    },
    { id },
  );
  const { warnings, ...rest } = await loadIn(tab, url);
  assert.deepEqual(rest, { logits });
  assert.match(warnings.join(), /is not kept/);
  assert.ok((await listIn(tab)).every((one) => one.id !== id));
  const left = await tab.evaluate(async () => {
    const { cache } = await import("/ternlight/index.js");
    const ended = await cache.delete().then(String, ({ name, code }) => `${name} ${code}`);
    const folder = await (await navigator.storage.getDirectory()).getDirectoryHandle("ternlight");
    const names = [];
    for await (const name of folder.keys()) names.push(name);
    return { ended, names };
  });
  assert.match(left.ended, /^(EngineError InUse|\d+)$/);
  assert.ok(left.names.includes("notes.txt") && left.names.includes("😀"), "another's file was deleted");

  // A file where the cache's folder should be.
  await inStorage(tab, async ({ root }) => {
    await root.removeEntry("ternlight", { recursive: true });
    await root.getFileHandle("ternlight", { create: true });
  });
  assert.deepEqual((await loadIn(tab, url)).logits, logits);
  assert.match((await loadIn(tab, url, { cache: true })).warnings.join(), /nothing is kept in a cache/);
  const listed = await tab.evaluate(async () => {
    const { cache } = await import("/ternlight/index.js");
    return Promise.all(
      [cache.list(), cache.delete()].map((one) => one.then(String, ({ name, code }) => `${name} ${code}`)),
    );
  });
  assert.deepEqual(listed, ["EngineError Unreadable", "EngineError Unreadable"]);
});

test("a tab that holds a file of the cache, or cuts it off while it is read, stops nobody", {
  timeout: 120_000,
}, async (context) => {
  const { url } = await modelServer(context);
  const open = await profileOf(context, browser, {
    "hold.js": `self.onmessage = async ({ data: { id, cut } }) => {
      const folder = await (await navigator.storage.getDirectory()).getDirectoryHandle("ternlight");
      const handle = await folder.getFileHandle(id);
      let file = null;
      // The holder before has ended when the browser has seen to it; any other error is one.
      while (!file) {
        file = await handle.createSyncAccessHandle().catch((error) => {
          if (error.name !== "NoModificationAllowedError") throw error;
          return new Promise((next) => setTimeout(next, 20));
        });
      }
      if (cut) { file.truncate(cut); file.flush(); }
      postMessage("held");
    };
    // A page hears of errors alone, of no promise that nobody awaited.
    self.onunhandledrejection = ({ reason }) => setTimeout(() => { throw reason; });`,
  });
  const [tab, other] = [await open(), await open()];
  const { logits } = await loadIn(tab, url);
  const id = await idOf(tab, WEIGHTS);
  const hold = (cut) =>
    other.evaluate(
      ({ id, cut }) =>
        new Promise((resolve, reject) => {
          globalThis.holder?.terminate();
          globalThis.holder = new Worker("/hold.js");
          globalThis.holder.onmessage = resolve;
          globalThis.holder.onerror = ({ message }) => reject(new Error(`it could not be held: ${message}`));
          globalThis.holder.postMessage({ id, cut });
        }).then(() => null),
      { id, cut },
    );
  for (const cut of [0, HEAD + MARKS + CHUNK + 7, 10]) {
    await hold(cut);
    assert.deepEqual((await loadIn(tab, url)).logits, logits, `cut to ${cut}`);
  }
  await other.close();
  await loadIn(tab, url);
  assert.deepEqual(await loadIn(tab, url), { logits, warnings: [] });
});

/** What a service worker answers where the weights are asked for; `honest` is the server's own answer. */
const LIES = {
  error: "Response.error()",
  "a rejection": "Promise.reject(new Error('no'))",
  "nothing at all": "new Promise(() => {})",
  "an answer without a body": "new Response(null, { status: 206 })",
  "no content": "new Response(null, { status: 204 })",
  "a redirect": "Response.redirect('file:///etc/passwd')",
  "a page": "new Response('<!doctype html>', { headers: { 'content-type': 'text/html' } })",
  "a size of 2^47": "with206({ 'content-range': 'bytes 0-9/140737488355328' })",
  "no size": "with206({})",
  "another range": "with206({ 'content-range': 'bytes 7-9/' + 2 ** 20 })",
  "lengths that are none":
    "new Response(new Uint8Array(9), { headers: { 'content-length': 'NaN', 'content-encoding': 'gzip' } })",
  "bytes without an end": "new Response(new ReadableStream({ pull(to) { to.enqueue(new Uint8Array(1 << 20)); } }))",
  "a part without an end": `new Response(new ReadableStream({ pull(to) { to.enqueue(new Uint8Array(1 << 20)); } }),
    { status: 206, headers: { 'content-range': 'bytes 0-9/5000000' } })`,
  "a body that breaks":
    "new Response(new ReadableStream({ start(to) { to.enqueue(new Uint8Array(9)); to.error(new Error('no')); } }))",
  "a body of texts": "new Response(new ReadableStream({ start(to) { to.enqueue('text'); to.close(); } }))",
  "another file": "new Response(new Uint8Array(200000), { headers: { etag: '\"1\"' } })",
  "an answer of another origin": "fetch('http://localhost:' + location.port + '/', { mode: 'no-cors' })",
};

test("a service worker that lies: typed errors, soon", { timeout: 240_000 }, async (context) => {
  const { url } = await modelServer(context);
  const open = await profileOf(context, browser, {
    "sw.js": `
      let lie = null;
      const with206 = (headers) => new Response(new Uint8Array(10), { status: 206, headers });
      const lies = { ${Object.entries(LIES).map(([what, answer]) => `${JSON.stringify(what)}: () => ${answer}`)} };
      self.oninstall = () => self.skipWaiting();
      self.onactivate = (event) => event.waitUntil(self.clients.claim());
      self.onmessage = ({ data, ports }) => { lie = data; ports[0].postMessage("heard"); };
      self.onfetch = (event) => {
        // Of weights four gigabytes would come before they are too many.
        const file = lie === "bytes without an end" ? "config.json" : ${JSON.stringify(WEIGHTS)};
        if (lie && new URL(event.request.url).pathname === "/" + file) event.respondWith(lies[lie]());
      };`,
  });
  const tab = await open();
  await tab.evaluate(async () => {
    await navigator.serviceWorker.register("/sw.js");
    if (!navigator.serviceWorker.controller)
      await new Promise((resolve) => navigator.serviceWorker.addEventListener("controllerchange", resolve));
  });
  const say = (lie) =>
    tab.evaluate(
      (lie) =>
        new Promise((resolve) => {
          const { port1, port2 } = new MessageChannel();
          port1.onmessage = () => resolve(null);
          navigator.serviceWorker.controller.postMessage(lie, [port2]);
        }),
      lie,
    );
  const ends = {};
  for (const lie of Object.keys(LIES)) {
    await say(lie);
    ends[lie] = await tab.evaluate(
      async ({ url, silent }) => {
        const { EngineError, load } = await import("/ternlight/index.js");
        const signal = AbortSignal.timeout(silent ? 2000 : 30_000);
        const begun = performance.now();
        const error = await load(url, { threads: 1, cache: false, signal }).then(
          () => null,
          (error) => error,
        );
        const code = error instanceof EngineError ? error.code : String(error);
        return { code, ms: performance.now() - begun };
      },
      { url, silent: lie === "nothing at all" },
    );
  }
  const silent = ends["nothing at all"];
  delete ends["nothing at all"];
  assert.match(silent.code, /TimeoutError/);
  for (const [lie, { code, ms }] of Object.entries(ends)) {
    assert.match(code, /^(Network|NotFound|TooLarge|Truncated|BadMagic|BadHeader|SourceChanged)$/, `${lie}: ${code}`);
    assert.ok(ms < 20_000, `${lie}: ${ms} ms`);
  }
  await say(null);
  assert.equal((await loadIn(tab, url)).logits.length, 50);
});

test("templates and formats without an end leave a page's other answers alone", {
  timeout: 120_000,
}, async (context) => {
  const { url } = await modelServer(context);
  const tab = await (await profileOf(context, browser))();
  const { codes, gap, text } = await tab.evaluate(async (url) => {
    const { load } = await import("/ternlight/index.js");
    const bombs = [
      "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
      "{% set a = 'a' * 1000000 %}{{ (a ~ 'b' ~ a) in (a * 4) }}",
      "{{ range(1000)|list|tojson(indent=400000) }}",
    ];
    const codes = [];
    const code = (work) =>
      work
        .then(
          () => "none",
          (error) => error.code,
        )
        .then((one) => codes.push(one));
    for (const chatTemplate of bombs) {
      const model = await load(url, { threads: 1, chatTemplate });
      await code(model.chat([{ role: "user", content: "Hi" }], { maxTokens: 1 }).finished);
      await model.close();
    }
    const model = await load(url, { threads: 1 });
    const ask = (responseFormat) => model.generate("Once", { responseFormat, maxTokens: 4 }).finished;
    let [gap, last] = [0, performance.now()];
    const other = model.generate("Once upon a time", {
      maxTokens: 2000,
      ignoreEos: true,
      onContextFull: "shift",
      temperature: 0,
    });
    const running = (async () => {
      let text = "";
      for await (const piece of other) {
        const now = performance.now();
        [gap, last] = [Math.max(gap, now - last), now];
        text += piece.text;
      }
      return text;
    })();
    const rules = Array.from({ length: 20000 }, (_, i) => `r${i}: r${i + 1}`);
    await code(ask({ type: "grammar", grammar: `start: r0\n${rules.join("\n")}\nr20000: "a"` }));
    await code(ask({ type: "regex", pattern: "a*b?c*".repeat(20000) }));
    other.stop();
    const text = await running;
    await model.close();
    return { codes, gap, text: text.slice(0, 40) };
  }, url);
  assert.deepEqual(codes, ["BadTemplate", "BadTemplate", "BadTemplate", "BadConstraint", "BadConstraint"]);
  assert.ok(gap < 3000, `${gap} ms`);
  assert.match(text, /^ there lived a man/);
});
