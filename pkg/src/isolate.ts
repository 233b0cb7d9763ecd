/**
 * Cross-origin isolation for pages whose host sends no headers. One file has two roles: in a page it is a plain script (not a
 * module) that registers itself as the site's service worker and reloads the page once; as service worker it adds the two headers to
 * pages and workers of this site and changes nothing else.
 */

/** Destinations of requests whose answers need the headers. */
const kinds = ["document", "iframe", "frame", "worker", "sharedworker"];
const headers = {
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-embedder-policy": "require-corp",
};

if (typeof document === "undefined") serve(self as unknown as ServiceWorker);
else if (!crossOriginIsolated) register((document.currentScript as HTMLScriptElement).src);
else mark(false);

/** Parts of service workers that TypeScript's DOM types lack. */
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
  // An answer that cannot be read cannot be changed either: redirects, other origins.
  if (response.status === 0) return response;
  const { status, statusText, body } = response;
  const answer = new Response(body, { status, statusText, headers: response.headers });
  for (const [name, value] of Object.entries(headers)) answer.headers.set(name, value);
  return answer;
}

async function register(script: string): Promise<void> {
  // Private windows of some browsers have no service workers, and pages without https have none.
  const workers = navigator.serviceWorker as ServiceWorkerContainer | undefined;
  if (!workers) return;
  const controlled = new Promise((resolve) => workers.addEventListener("controllerchange", resolve, { once: true }));
  const { active } = await workers.register(script);
  // A forced reload bypasses an active service worker; a new one takes over when it is ready.
  if (!active) await controlled;
  // Only once: where it does not help, the page stays as it is.
  if (mark(true)) location.reload();
}

/** Records whether the page was reloaded. @returns whether it was not recorded before */
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
