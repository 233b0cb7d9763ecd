import { load } from "ternlight";
import demo from "ternlight/demo";

// MODEL=hf:prism-ml/Bonsai-1.7B-gguf, for example, is a better one: 248 MB, downloaded once.
const source = process.env.MODEL ?? demo;

// Once for all requests, and for all reloads of this module while it is being written.
const loadOnce = () => {
  globalThis.ternlightModel ??= load(source).catch((error) => {
    globalThis.ternlightModel = undefined;
    throw error;
  });
  return globalThis.ternlightModel;
};

export async function POST(request) {
  const { beginning } = await request.json().catch(() => ({}));
  if (typeof beginning !== "string" || beginning === "") return new Response("beginning: a text", { status: 400 });
  const model = await loadOnce();
  // Who leaves the page ends the story.
  const story = model.generate(beginning, { maxTokens: 120, signal: request.signal });
  return new Response(story.textStream(), { headers: { "content-type": "text/plain; charset=utf-8" } });
}
