/** Makes the page one that opens without a network: its service worker, and what that keeps. */

/** What the page loads when it is asked to, from its own place. A test holds the list to the files that there are. */
export const LATER = [
  ...["chat/view.js", "chat/live.js", "chat/panel.js", "chat/store.js", "chat/transfer.js", "chat/tree.js"],
  ...[
    "chat/turns.js",
    "chat/chat.css",
    "dom.js",
    "links.js",
    "models/chooser.js",
    "models/chosen.js",
    "models/kept.js",
    "models/known.js",
    "models/picker.js",
  ],
  ...[
    "play/json.js",
    "play/tools.js",
    "play/play.css",
    "probe.js",
    "problems.js",
    "rows.css",
    "several.js",
    "several.css",
  ],
  ...["storage/panel.js", "manifest.webmanifest", "icon.svg"],
  ...["icon-192.png", "icon-512.png", "maskable-512.png", "apple-touch-icon.png"].map((name) => `icons/${name}`),
];
/** … and from the package. What only some models need is kept when one has needed it. */
const PACKAGE = ["catalogue.js", "chat.js", "formats.js", "gguf.js", "hub.js", "index.js", "markdown.js", "worker.js"];

/** @param flavour the build of the engine that runs */
export async function register(flavour) {
  // Private windows of some browsers have no service workers, and pages without https have none.
  const workers = navigator.serviceWorker;
  if (!workers) return;
  const base = new URL("../", import.meta.url);
  await workers.register(new URL("sw.js", base), { scope: base.href });
  const { active } = await workers.ready;
  // With the worker's headers the next visit has threads.
  const builds = crossOriginIsolated ? [flavour] : [flavour, flavour.replace("single", "threads")];
  const engine = [...PACKAGE, ...builds.map((name) => `${name}.wasm`)].map((name) => `ternlight/dist/${name}`);
  const loaded = performance.getEntriesByType("resource").map(({ name }) => name);
  const keep = [location.href, ...loaded, ...[...LATER, ...engine].map((name) => new URL(name, base).href)];
  const { port1, port2 } = new MessageChannel();
  const kept = new Promise((resolve) => {
    port1.onmessage = resolve;
  });
  active.postMessage({ keep }, [port2]);
  await kept;
  document.documentElement.dataset.offline = "ready";
}
