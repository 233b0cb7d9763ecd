/**
 * Cross-origin isolation for pages whose host sends no headers. One file, twice the same: in a page a plain script (not a
 * module) that makes itself the site's service worker and loads the page once more; as service worker it gives pages
 * and workers of this site the two headers, and touches nothing else.
 */

/** Answers that browsers look for the headers on. */
const kinds = ["document", "iframe", "frame", "worker", "sharedworker"];
const headers = {
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-embedder-policy": "require-corp",
};

if (typeof document === "undefined") serve(self as unknown as ServiceWorker);
else if (!crossOriginIsolated) register((document.currentScript as HTMLScriptElement).src);
else mark(false);

/** What TypeScript's DOM does not know of service workers. */
interface ServiceWorker extends EventTarget {
  skipWaiting(): void;
  clients: { claim(): Promise<void> };
}
interface FetchEvent extends Event {
  request: Request;
  respondWith(answer: Promise<Response>): void;
  waitUntil(work: Promise<void>): void;
}

function serve(worker: ServiceWorker): void {
  worker.addEventListener("install", () => worker.skipWaiting());
  worker.addEventListener("activate", (event) => (event as FetchEvent).waitUntil(worker.clients.claim()));
  worker.addEventListener("fetch", (event) => {
    const { request, respondWith } = event as FetchEvent;
    if (kinds.includes(request.destination)) respondWith.call(event, isolated(request));
  });
}

async function isolated(request: Request): Promise<Response> {
  const response = await fetch(request);
  // What may not be read may not be changed either: redirects, other origins.
  if (response.status === 0) return response;
  const { status, statusText, body } = response;
  const answer = new Response(body, { status, statusText, headers: response.headers });
  for (const [name, value] of Object.entries(headers)) answer.headers.set(name, value);
  return answer;
}

async function register(script: string): Promise<void> {
  // There are none in private windows of some browsers, nor without https.
  const workers = navigator.serviceWorker as ServiceWorkerContainer | undefined;
  if (!workers) return;
  const controlled = new Promise((resolve) => workers.addEventListener("controllerchange", resolve, { once: true }));
  const { active } = await workers.register(script);
  // A forced reload passes by a service worker that is there; a first one takes over when it is ready.
  if (!active) await controlled;
  // Once: where it does not help, the page stays as it is.
  if (mark(true)) location.reload();
}

/** Notes that the page was loaded again; true if that is new. */
function mark(value: boolean): boolean {
  const key = "ternlight-isolate";
  try {
    const before = sessionStorage.getItem(key) !== null;
    if (value) sessionStorage.setItem(key, "");
    else sessionStorage.removeItem(key);
    return !before;
  } catch {
    return false;
  }
}
