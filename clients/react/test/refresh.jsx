/** A component in two versions, which the test exchanges as a development server does; and one that a server has rendered. */
import { useChatSession, useGeneration, useTernlight } from "@ternlight/react";
import { createElement, version } from "react";
import * as refresh from "react-refresh/runtime";

// The renderer looks for the runtime when it is loaded.
refresh.injectIntoGlobalHook(globalThis);
const { createRoot, hydrateRoot } = await import("react-dom/client");

const options = () => ({
  threads: 1,
  chatTemplate: "{% for message in messages %}{{ message.content }}{% endfor %}",
  cache: false,
  warmup: false,
});

/** A version of the component, of the same hooks: their signature is what keeps its state. */
function made(words) {
  const sign = refresh.createSignatureFunctionForTransform();
  function Teller() {
    sign();
    const found = useTernlight("/model/", options());
    const generation = useGeneration(found.model);
    const chat = useChatSession(found.model, { maxTokens: 200 });
    globalThis.seen = { ...found, generation, chat };
    return createElement("p", null, `${words}: ${found.status}`);
  }
  sign(Teller, "ternlight, generation, chat");
  refresh.register(Teller, "Teller");
  return Teller;
}

const Teller = made("first");
Object.assign(globalThis, {
  version,
  refreshed: () => {
    made("second");
    refresh.performReactRefresh();
  },
});

const root = document.getElementById("root");
if (new URLSearchParams(location.search).has("hydrate")) {
  // What `renderToString` makes of it: server.test.mjs.
  root.innerHTML = "<p>first: loading</p>";
  hydrateRoot(root, createElement(Teller), {
    onRecoverableError: (error) => console.error(error),
  });
} else createRoot(root).render(createElement(Teller));
