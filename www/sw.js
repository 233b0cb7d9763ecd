/**
 * The page's service worker. It keeps the page's own files, so that the page opens without a network, and adds the two headers that give
 * pages threads where the host does not send them. The network comes first: what is kept is never older than the last visit. Models are no
 * matter of this worker: the package keeps them itself.
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
  if (request.method === "GET" && own && !request.headers.has("range")) event.respondWith(answer(request));
});

async function answer(request) {
  const cache = await caches.open(CACHE).catch(() => null);
  let response;
  try {
    response = await fetch(request);
    if (response.status === 200 && kept(request.url))
      await cache?.put(keyOf(request.url), response.clone()).catch(() => {});
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

/** @returns the addresses that could not be had */
async function keepAll(urls) {
  const cache = await caches.open(CACHE);
  const missing = [];
  for (const url of new Set(urls.map(keyOf))) {
    if (!url.startsWith(self.registration.scope) || !kept(url) || (await cache.match(url))) continue;
    const response = await fetch(url).catch(() => null);
    if (response?.status === 200) await cache.put(url, response);
    else missing.push(url);
  }
  return missing;
}
