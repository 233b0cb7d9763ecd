/** Links to a model and a prompt: `#model=hf:owner/repo&prompt=…`. What stands behind the # is never sent to a server. */

import { button, make } from "./dom.js";
import { size } from "./format.js";
import { known } from "./models/known.js";

/** A prompt of a link is cut here: what is longer is no prompt that somebody shares. */
const MOST_PROMPT = 8000;

/** What an address asks for; each is null where it does not. */
export function readLink(hash) {
  const asked = new URLSearchParams(hash.slice(1));
  return { model: asked.get("model"), prompt: asked.get("prompt")?.slice(0, MOST_PROMPT) ?? null };
}

/** The link of a model and a prompt. A file of this device has no link. */
export function linkTo({ builtIn, source }, prompt) {
  const parts = new URLSearchParams();
  if (!builtIn && typeof source === "string") parts.set("model", source);
  if (prompt) parts.set("prompt", prompt);
  const url = new URL(location.href);
  url.hash = parts.toString();
  return url.href;
}

/**
 * Asks before anything is downloaded.
 *
 * @param loaded the name of the model that is there; null where none is
 * @returns whether to load the model of the link; null where something else was begun before an answer
 */
export async function confirmed(section, choice, loaded, signal) {
  const host = choice.source.startsWith("hf:") ? "huggingface.co" : new URL(choice.source).host;
  const { bytes } = (await known(choice.source).catch(() => null)) ?? {};
  const taken = bytes ? `${size(bytes)} are downloaded` : "How much is downloaded is not known";
  return new Promise((resolve) => {
    const answer = (yes) => {
      signal.removeEventListener("abort", givenUp);
      section.hidden = true;
      section.replaceChildren();
      resolve(yes);
    };
    const givenUp = () => answer(null);
    if (signal.aborted) return givenUp();
    signal.addEventListener("abort", givenUp);
    const yes = button("Load it", () => answer(true), null, "primary");
    section.replaceChildren(
      make("h2", {}, `This link asks for the model ${choice.name}`),
      make("p", {}, `It comes from ${host}. ${taken}; nothing has been asked for yet.`),
      make(
        "p",
        "actions",
        yes,
        button(loaded ? `No, keep ${loaded}` : "No, the built-in model", () => answer(false), null, ""),
      ),
    );
    section.hidden = false;
    yes.focus();
  });
}
