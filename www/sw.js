/**
 * The page's service worker. It keeps the page's own files, so that the page opens without a network, and adds the two headers that give
 * pages threads where the host does not send them. The network comes first. What is kept is one version of the site: its files are asked for
 * again together, and take the place of the older ones together, so that a page without a network never has modules of two versions. Models
 * are no matter of this worker: the package keeps them itself.
 */

const CACHE = "ternlight-page";
/** Destinations of requests whose answers need the headers. */
const ISOLATED = ["document", "iframe", "frame", "worker", "sharedworker"];
const HEADERS = {
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-embedder-policy": "require-corp",
};

self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));

/** A page says what it has loaded, and what it would load later. */
self.addEventListener("message", (event) => {
  const { keep } = event.data ?? {};
  if (Array.isArray(keep)) event.waitUntil(keepAll(keep).then((missing) => event.ports[0]?.postMessage({ missing })));
});

self.addEventListener("fetch", (event) => {
  const { request } = event;
  const { origin, href } = new URL(request.url);
  const own = origin === location.origin && href.startsWith(self.registration.scope);
  // Parts of files are a model's.
  if (request.method === "GET" && own && !request.headers.has("range")) event.respondWith(answer(event));
});

async function answer(event) {
  const { request } = event;
  const cache = await caches.open(CACHE).catch(() => null);
  let response;
  try {
    response = await fetch(request);
    // What only some models need is kept with the rest when one has needed it.
    if (response.status === 200 && (await isNew(cache, request.url))) event.waitUntil(keepAll([request.url]));
  } catch (error) {
    response = await cache?.match(keyOf(request.url));
    if (!response) throw error;
  }
  return ISOLATED.includes(request.destination) ? isolated(response) : response;
}

/** A page is the same file whatever is asked of it. */
function keyOf(url) {
  const key = new URL(url);
  key.search = key.hash = "";
  return key.href;
}

/** Models are large, and kept already. */
const kept = (url) => !new URL(url).pathname.includes("/ternlight/models/");

function isolated(response) {
  // An answer that cannot be read cannot be changed either.
  if (response.status === 0) return response;
  const { status, statusText, body, headers } = response;
  const answer = new Response(body, { status, statusText, headers });
  for (const [name, value] of Object.entries(HEADERS)) answer.headers.set(name, value);
  return answer;
}

/** Whether a file of the page is not kept, and others are. */
async function isNew(cache, url) {
  if (!cache || !mayKeep(url) || (await cache.match(keyOf(url)))) return false;
  return (await cache.keys()).length > 0;
}

const mayKeep = (url) => url.startsWith(self.registration.scope) && kept(url);

let keeping = Promise.resolve();
const wanted = new Set();

/** Keeps these files, and those that are kept already, as they are now. @returns the addresses that could not be had */
function keepAll(urls) {
  for (const url of urls.map(keyOf)) if (mayKeep(url)) wanted.add(url);
  const missing = keeping.then(() => (wanted.size > 0 ? keepVersion() : [])).catch(() => urls);
  keeping = missing;
  return missing;
}

async function keepVersion() {
  const cache = await caches.open(CACHE);
  const before = (await cache.keys()).map(({ url }) => url);
  const urls = [...new Set([...before, ...wanted])];
  wanted.clear();
  const found = await Promise.all(urls.map(async (url) => [url, await latest(url)]));
  const lacking = found.filter(([, response]) => !response).map(([url]) => url);
  // A file that is gone is none of this version; one that could not be had leaves the older version as it is.
  if (lacking.length > 0) return lacking;
  const [there, gone] = [[], []];
  for (const one of found) (one[1].status === 200 ? there : gone).push(one);
  await Promise.all([
    ...there.map(([url, response]) => cache.put(url, response)),
    ...gone.map(([url]) => cache.delete(url)),
  ]);
  return gone.map(([url]) => url);
}

/** A file as the server has it now, with all of its bytes; null where the server does not say. */
async function latest(url) {
  try {
    // A browser's own cache may be asked, and asks the server whether what it has is the latest.
    const response = await fetch(url, { cache: "no-cache" });
    const { status, headers } = response;
    if (status === 404 || status === 410) return response;
    return status === 200 ? new Response(await response.arrayBuffer(), { headers }) : null;
  } catch {
    return null;
  }
}
