/** Links to a model and a prompt: `#model=hf:owner/repo&prompt=…`. What stands behind the # is never sent to a server. */

import { button, make } from "./dom.js";
import { size } from "./format.js";
import { fromAddress } from "./models/chosen.js";
import { known } from "./models/known.js";
import { builtIn } from "./models/sources.js";

/** A prompt of a link is cut here: what is longer is no prompt that somebody shares. */
const MAX_PROMPT = 8000;

/** What an address asks for; each is null where it does not. */
function readLink(hash) {
  const asked = new URLSearchParams(hash.slice(1));
  return { model: asked.get("model"), prompt: asked.get("prompt")?.slice(0, MAX_PROMPT) ?? null };
}

/** Copies the link of a model and a prompt. A file of this device has no link. @returns what was copied, in words */
export async function copyLink(choice, prompt) {
  const parts = new URLSearchParams();
  const hasLink = typeof choice.source === "string";
  if (hasLink) parts.set("model", choice.source);
  if (prompt) parts.set("prompt", prompt);
  const url = new URL(location.href);
  url.hash = parts.toString();
  await navigator.clipboard.writeText(url.href);
  if (hasLink || choice.builtIn) return "A link to this model and prompt is copied";
  return "A link to this prompt is copied, without the model, which is a file of this device";
}

/**
 * Loads what the page's address asks for, when its reader has said yes.
 *
 * @param page { prompt, section, loaded, load(choice), settle(words) }: `section` is where the question stands, `loaded` the choice that is
 * there, or null
 */
export async function follow({ prompt, section, loaded, load, settle }, signal) {
  const asked = readLink(location.hash);
  if (asked.prompt !== null) prompt.value = asked.prompt;
  const stay = async () => loaded ?? load(builtIn);
  let linked = null;
  try {
    if (asked.model) linked = fromAddress(asked.model);
  } catch (error) {
    await stay();
    throw error;
  }
  if (!linked || linked.source === loaded?.source) return stay();
  settle("A link asks for a model");
  const answer = await confirmed(section, linked, loaded?.name, signal);
  if (section.contains(document.activeElement)) prompt.focus();
  if (answer) return load(linked);
  if (answer === false && !loaded) return load(builtIn);
  settle("The link was not followed");
}

/**
 * Asks before anything is downloaded.
 *
 * @param loaded the name of the model that is there, where one is
 * @returns whether to load the model of the link; null where something else was begun before an answer
 */
async function confirmed(section, choice, loaded, signal) {
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
